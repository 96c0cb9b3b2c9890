//! The policies as WebAssembly core modules, compiled by the build script.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use polity_sandbox::{Compiler, Policy, Sandbox, SandboxConfig};

/// The folder with all of them: `capv_machine.wasm` and so on.
pub fn folder() -> &'static Path {
    Path::new(env!("GUESTS"))
}

/// What cargo was told of the compiler (`--config`). What is built with the same, in the same folder, shares their dependencies.
pub const FLAGS: &str = env!("GUEST_FLAGS");

/// The target folder in which they were built. What else is built for WebAssembly finds its dependencies there.
///
/// # Panics
/// Never: the build script says where they are.
pub fn target() -> &'static Path {
    folder().ancestors().nth(2).expect("a folder of cargo")
}

/// The shipped policy `capv-machine`.
pub fn capv_machine() -> &'static [u8] {
    include_bytes!(env!("GUEST_CAPV_MACHINE"))
}

/// A policy that misbehaves as its configuration says; see `tests/hostile`.
pub fn hostile() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE"))
}

/// An identity policy that misbehaves as an annotation says; see `tests/hostile/identity`.
pub fn hostile_identity() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_IDENTITY"))
}

/// A policy that behaves, with this value in place of the CustomResourceDefinition of its manifest; see
/// `tests/hostile/manifest`.
///
/// # Panics
/// The value is too long.
pub fn hostile_manifest(crd: &serde_json::Value) -> Vec<u8> {
    with_text(
        include_bytes!(env!("GUEST_HOSTILE_MANIFEST")),
        b"this-is-the-crd-of-the-manifest",
        crd,
    )
}

/// A driver that misbehaves as its configuration says; see `tests/hostile/driver`.
pub fn hostile_driver() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_DRIVER"))
}

/// The same, with these fields in its manifest. A schema of a configuration with `xBytes` has a description of so many bytes.
///
/// # Panics
/// The fields are too long.
pub fn hostile_driver_with(fields: &serde_json::Value) -> Vec<u8> {
    with_text(
        hostile_driver(),
        b"these-are-other-fields-of-the-manifest",
        fields,
    )
}

/// A retry policy that misbehaves as its configuration says; see `tests/hostile/retry`.
pub fn hostile_retry() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_RETRY"))
}

/// A policy that behaves, whose configuration has this schema; see `tests/hostile/schema`.
///
/// # Panics
/// The schema is too long.
pub fn hostile_schema(schema: &serde_json::Value) -> Vec<u8> {
    with_text(
        include_bytes!(env!("GUEST_HOSTILE_SCHEMA")),
        b"this-is-the-schema-of-the-configuration",
        schema,
    )
}

/// A guest with this value in the place that begins with a mark.
fn with_text(guest: &[u8], mark: &[u8], value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = guest.to_vec();
    let at = bytes.windows(mark.len()).position(|found| found == mark);
    let room = &mut bytes[at.expect("the compiled guest holds the mark")..];
    let (text, room) = (value.to_string(), &mut room[..16 << 10]);
    assert!(text.len() <= room.len(), "{} bytes", text.len());
    room.fill(b' ');
    room[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// A policy whose component has this many more instances of another module.
pub fn with_instances(policy: &[u8], module: &[u8], count: u32) -> Vec<u8> {
    let mut component = wit_component::ComponentEncoder::default()
        .module(policy)
        .and_then(|mut encoder| encoder.encode())
        .expect("a component");
    let modules = sections(&component).filter(|(id, _)| *id == CORE_MODULE).count();
    section(&mut component, CORE_MODULE, module);
    let mut instances = leb(count);
    for _ in 0..count {
        // Instantiates the module, without arguments.
        instances.push(0);
        instances.extend(leb(u32::try_from(modules).expect("a few")));
        instances.push(0);
    }
    section(&mut component, CORE_INSTANCE, &instances);
    component
}

/// A policy, given as a core module, whose memory begins with this many pages of 64 KiB, as if linked with a
/// larger stack.
///
/// # Panics
/// It is not a core module, or has no memory of its own.
pub fn with_pages(policy: &[u8], pages: u32) -> Vec<u8> {
    let mut module = policy[..8].to_vec();
    for (id, body) in sections(policy) {
        match id {
            MEMORY => {
                assert_eq!(body[..2], [1, 0], "one memory without a maximum");
                section(&mut module, id, &[&[1, 0][..], &leb(pages)].concat());
            }
            _ => section(&mut module, id, body),
        }
    }
    module
}

/// A section of modules.
const MEMORY: u8 = 5;
/// Sections of components.
const CORE_MODULE: u8 = 1;
const CORE_INSTANCE: u8 = 2;

/// A component's or module's own sections.
fn sections(component: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = &component[8..];
    std::iter::from_fn(move || {
        let (&id, after) = rest.split_first()?;
        let bytes = after.iter().position(|byte| byte & 0x80 == 0)? + 1;
        let length = after[..bytes]
            .iter()
            .rev()
            .fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
        let (body, others) = after[bytes..].split_at(length);
        rest = others;
        Some((id, body))
    })
}

fn section(component: &mut Vec<u8>, id: u8, body: &[u8]) {
    component.push(id);
    component.extend(leb(u32::try_from(body.len()).expect("a few bytes")));
    component.extend(body);
}

fn leb(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A core module whose compilation takes long and much memory: one function with this many operations, each
/// of which needs all earlier ones.
pub fn bomb(operations: usize) -> Vec<u8> {
    let mut body = vec![0];
    for n in 0..operations {
        // i32.const, i32.const, i32.store: as many addresses as there are, so that nothing folds.
        body.push(0x41);
        body.extend(sleb(n));
        body.push(0x41);
        body.extend(sleb(n));
        body.extend([0x36, 2, 0]);
    }
    body.push(0x0b);
    let mut code = leb(1);
    code.extend(leb(u32::try_from(body.len()).expect("a few MB")));
    code.extend(body);
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    section(&mut module, 1, &[1, 0x60, 0, 0]);
    section(&mut module, 3, &[1, 0]);
    section(&mut module, 5, &[1, 0, 1]);
    section(&mut module, 10, &code);
    module
}

fn sleb(number: usize) -> Vec<u8> {
    let mut bytes = leb(u32::try_from(number).expect("a few"));
    // The sign is the second highest bit of the last byte.
    if bytes.last().is_some_and(|last| last & 0x40 != 0) {
        *bytes.last_mut().expect("there is one") |= 0x80;
        bytes.push(0);
    }
    bytes
}

/// A component that contains only these modules.
pub fn component_of(modules: &[Vec<u8>]) -> Vec<u8> {
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    for module in modules {
        section(&mut component, CORE_MODULE, module);
    }
    component
}

/// A lifecycle policy that returns exactly what an annotation says; see `tests/hostile/verbatim`.
pub fn verbatim() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_VERBATIM_LIFECYCLE"))
}

/// An identity policy that returns exactly what an annotation says.
pub fn verbatim_identity() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_VERBATIM_IDENTITY"))
}

/// A retry policy that returns exactly what its configuration says.
pub fn verbatim_retry() -> &'static [u8] {
    include_bytes!(env!("GUEST_HOSTILE_VERBATIM_RETRY"))
}

/// Long limits, because many tests compile at once on a busy machine.
fn patient() -> SandboxConfig {
    SandboxConfig {
        compile_time: std::time::Duration::from_secs(3_600),
        ..SandboxConfig::new(Compiler::InProcess)
    }
}

/// The sandbox of this process: each policy is compiled once.
pub fn sandbox() -> &'static Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    SANDBOX.get_or_init(|| Arc::new(Sandbox::new(patient()).expect("an engine")))
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
