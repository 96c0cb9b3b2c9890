//! Policies as WebAssembly, compiled by the build script.

/// The folder of all of them, `capv_machine.wasm` and so on.
pub fn folder() -> &'static std::path::Path {
    std::path::Path::new(env!("GUESTS"))
}

/// The shipped policy `capv-machine`, a core module.
pub fn capv_machine() -> &'static [u8] {
    include_bytes!(env!("GUEST_CAPV_MACHINE"))
}

/// A policy that misbehaves in the way its configuration names; see `tests/hostile`.
pub fn hostile() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE"))
}
