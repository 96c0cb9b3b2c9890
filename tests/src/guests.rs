//! Policies as WebAssembly, compiled by the build script: core modules.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use polity_sandbox::{Policy, Sandbox, SandboxConfig};

/// The folder of all of them, `capv_machine.wasm` and so on.
pub fn folder() -> &'static Path {
    Path::new(env!("GUESTS"))
}

/// The shipped policy `capv-machine`.
pub fn capv_machine() -> &'static [u8] {
    include_bytes!(env!("GUEST_CAPV_MACHINE"))
}

/// A policy that misbehaves in the way its configuration names; see `tests/hostile`.
pub fn hostile() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE"))
}

/// An identity policy that misbehaves in the way an annotation names; see `tests/hostile/identity`.
pub fn hostile_identity() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_IDENTITY"))
}

/// A retry policy that misbehaves in the way its configuration names; see `tests/hostile/retry`.
pub fn hostile_retry() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_RETRY"))
}

/// The sandbox of this process: each policy is compiled once.
pub fn sandbox() -> &'static Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    SANDBOX.get_or_init(|| Arc::new(Sandbox::new(SandboxConfig::default()).expect("an engine")))
}

/// A shipped policy by its crate's name, loaded.
///
/// # Panics
/// If there is none, or it does not load.
pub fn load(name: &str) -> Arc<Policy> {
    let file = folder().join(format!("{}.wasm", name.replace('-', "_")));
    let bytes = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    sandbox().load(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"))
}
