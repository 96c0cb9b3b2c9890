//! The build script of a policy's crate: the arguments of the linker.
//!
//! All of such a `build.rs`: its `main` calls [`link`].
//!
//! Every step of a policy starts in fresh memory, which the host clears afterwards, so less memory means less work. Without
//! arguments the linker reserves a stack of 1 MiB. Cargo takes arguments for the linker only from the crate that is
//! linked, so the SDK cannot set them itself. Without them, its attribute `#[polity_sdk::policy]` refuses to compile for
//! WebAssembly.

/// Bytes of stack that a policy of usual depth needs.
const STACK: u32 = 64 << 10;
/// Bytes of heap at the beginning; the heap grows if that is not enough.
const HEAP: u32 = 64 << 10;

/// Links the policy with a stack of 64 KiB and a heap that begins with as much.
pub fn link() {
    link_with_stack(STACK);
}

/// Links the policy with a stack of so many bytes, a multiple of 16. Use it for a policy whose code goes deeper, for example
/// because it reads objects that are nested without a limit.
pub fn link_with_stack(bytes: u32) {
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    for instruction in instructions(&target, bytes) {
        #[allow(clippy::print_stdout, reason = "cargo reads it")]
        {
            println!("cargo::{instruction}");
        }
    }
}

/// The instructions for cargo. A native build, in which a policy is tested, needs none.
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
