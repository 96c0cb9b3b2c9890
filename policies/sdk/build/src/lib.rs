//! What the build script of a policy's crate says to the linker.
//!
//! All of such a `build.rs`: its `main` calls [`link`].
//!
//! Every step of a policy starts in fresh memory, which the host clears afterwards: what is not there need not be cleared.
//! A linker that is told nothing reserves a stack of 1 MiB. Cargo hands the arguments of a linker on from the crate that
//! is linked only, so the SDK cannot say them itself. Its attribute `#[polity_sdk::policy]` refuses to compile for
//! WebAssembly without them.

/// Bytes of stack that a policy of usual depth needs.
const STACK: u32 = 64 << 10;
/// Bytes of heap at the beginning; it grows where that is not enough.
const HEAP: u32 = 64 << 10;

/// Links the policy with a stack of 64 KiB and a heap that begins with as much.
pub fn link() {
    link_with_stack(STACK);
}

/// Links the policy with a stack of so many bytes, a multiple of 16, for one whose code goes deeper: it reads objects
/// that are nested without a limit, for example.
pub fn link_with_stack(bytes: u32) {
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    for instruction in instructions(&target, bytes) {
        #[allow(clippy::print_stdout, reason = "cargo reads it")]
        {
            println!("cargo::{instruction}");
        }
    }
}

/// What cargo is told. Natively, where a policy is tested, there is nothing to link.
fn instructions(target: &str, stack: u32) -> Vec<String> {
    let mut all = vec![
        "rerun-if-changed=build.rs".to_owned(),
        "rustc-env=POLITY_LINKED=1".to_owned(),
    ];
    if target == "wasm32" {
        all.push(format!("rustc-link-arg-cdylib=-zstack-size={stack}"));
        all.push(format!("rustc-link-arg-cdylib=--initial-heap={HEAP}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_policy_for_webassembly_is_linked_otherwise() {
        let linked = |target| {
            let all = instructions(target, STACK);
            all.into_iter()
                .filter(|one| one.starts_with("rustc-link-arg"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            linked("wasm32"),
            [
                "rustc-link-arg-cdylib=-zstack-size=65536",
                "rustc-link-arg-cdylib=--initial-heap=65536"
            ]
        );
        assert!(linked("x86_64").is_empty());
    }
}
