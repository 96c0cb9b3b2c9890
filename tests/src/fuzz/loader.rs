//! Fuzzes the loader of policies: with changed policies, generated modules, and arbitrary bytes.
//!
//! Nothing may panic or take for ever. A file that is not a policy is refused, and a policy that loads can be
//! called.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polity_core::binding::Limits;
use polity_core::contract::{Kind, Origin, Pass, RetryClass, RetryRequest, Role};
use polity_sandbox::{Compiler, Policy, Sandbox, SandboxConfig};
use wasm_smith::{Config, Module};

use super::Choices;
use crate::guests;

/// Bytes at the beginning of a wasm file: its magic number and version.
const HEADER: usize = 8;

/// Loads the module of these bytes, and calls it if it loads.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let bytes = match choices.below(8) {
        0 => choices.rest().to_vec(),
        1 => {
            let mut bytes = choices.pick(&[b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"]).to_vec();
            bytes.extend_from_slice(choices.rest());
            bytes
        }
        2 | 3 => made(&mut choices),
        _ => mutated(&mut choices),
    };
    if let Ok(policy) = sandbox().load(&bytes) {
        call(&policy);
    }
}

/// The sandbox of this process. It remembers one policy, because no two are the same.
fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let config = SandboxConfig {
            largest: 1 << 20,
            kept_code: 0,
            ..SandboxConfig::new(Compiler::InProcess)
        };
        Sandbox::new(config).expect("an engine")
    })
}

fn call(policy: &Arc<Policy>) {
    let limits = Limits {
        step_fuel: 2_000_000,
        memory: 4 << 20,
        step_wall: Duration::from_millis(200),
        ..Limits::default()
    };
    let config: polity_core::contract::Json = "{}".into();
    if policy.role() == Role::Retry {
        let request = RetryRequest {
            kind: Kind {
                api_version: "v1".into(),
                kind: "Thing".into(),
            },
            namespace: None,
            origin: Origin::Lifecycle,
            class: RetryClass::Short,
            failure: None,
            attempt: 1,
            failing_for: 0,
            previous_wait: None,
            seed: 1,
            config,
        };
        let (_, fuel) = policy.decide(&request, &limits);
        assert!(fuel <= limits.step_fuel, "{fuel}");
        return;
    }
    let pass = Pass {
        object: Some(r#"{"apiVersion":"v1","kind":"Thing","metadata":{"name":"t","uid":"u"}}"#.into()),
        now: 1_000,
        causes: Vec::new(),
        attempt: 0,
        config,
        pending: Vec::new(),
        journal: Vec::new(),
    };
    let stepped = policy.step(&pass, &limits);
    assert!(stepped.fuel <= limits.step_fuel, "{}", stepped.fuel);
}

/// A generated module, with or without the description of a policy's world.
fn made(choices: &mut Choices<'_>) -> Vec<u8> {
    let described = choices.chance(192);
    let world = world_of(choices.pick(&[
        guests::hostile(),
        guests::hostile_identity(),
        guests::hostile_retry(),
    ]));
    let config = Config {
        max_memories: 8,
        max_tables: 8,
        allow_start_export: true,
        generate_custom_sections: true,
        ..Config::default()
    };
    let Ok(module) = Module::new(config, choices.unstructured()) else {
        return Vec::new();
    };
    let mut bytes = module.to_bytes();
    if described {
        bytes.extend_from_slice(&world);
    }
    bytes
}

/// A policy with changed sections and bytes.
fn mutated(choices: &mut Choices<'_>) -> Vec<u8> {
    let policy = choices.pick(&[guests::hostile_retry(), guests::hostile_identity(), component()]);
    let mut sections: Vec<Vec<u8>> = sections(policy).map(|section| section.bytes.to_vec()).collect();
    let header = policy[..HEADER].to_vec();
    for _ in 0..=choices.below(6) {
        let nth = choices.below(sections.len().max(1));
        match (choices.below(10), sections.get_mut(nth)) {
            (_, None) => break,
            (0, Some(_)) => {
                sections.remove(nth);
            }
            (1, Some(section)) => {
                let twice = section.clone();
                sections.push(twice);
            }
            (2, Some(_)) => {
                let other = choices.below(sections.len());
                sections.swap(nth, other);
            }
            (3, Some(section)) => {
                let end = usize::from(choices.short()) % section.len().max(1);
                section.truncate(end);
            }
            (4, Some(_)) => {
                let len = choices.below(64);
                let mut section = vec![choices.byte() % 16];
                section.extend_from_slice(choices.bytes(len));
                sections.insert(nth, section);
            }
            (_, Some(section)) => {
                for _ in 0..=choices.below(4) {
                    // The counts and indices of a section are at its beginning.
                    let most = if choices.chance(128) {
                        64
                    } else {
                        usize::from(u16::MAX)
                    };
                    let at = usize::from(choices.short()) % section.len().clamp(1, most);
                    if let Some(byte) = section.get_mut(at) {
                        *byte = choices.byte();
                    }
                }
            }
        }
    }
    let mut bytes = header;
    sections
        .iter()
        .for_each(|section| bytes.extend_from_slice(section));
    bytes
}

/// A policy as a component.
fn component() -> &'static [u8] {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(|| {
        wit_component::ComponentEncoder::default()
            .module(guests::hostile_retry())
            .and_then(|mut encoder| encoder.encode())
            .expect("a component")
    })
}

/// The sections of a module that say of which world it is.
fn world_of(policy: &[u8]) -> Vec<u8> {
    let holds = |section: &Section<'_>| {
        let name = b"component-type";
        section.id == 0
            && section
                .bytes
                .windows(name.len())
                .take(16)
                .any(|bytes| bytes == name)
    };
    sections(policy)
        .filter(holds)
        .flat_map(|section| section.bytes.to_vec())
        .collect()
}

/// A section of a wasm file.
pub struct Section<'a> {
    /// Which sort.
    pub id: u8,
    /// All of it: its sort, its length and its content.
    pub bytes: &'a [u8],
}

/// The sections of a module or a component, as far as they can be told apart.
pub fn sections(wasm: &[u8]) -> impl Iterator<Item = Section<'_>> {
    let mut rest = wasm.get(HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let id = *rest.first()?;
        let (mut length, mut at) = (0usize, 1);
        loop {
            let byte = *rest.get(at)?;
            length |= usize::from(byte & 0x7f) << (7 * (at - 1));
            at += 1;
            if byte & 0x80 == 0 || at > 5 {
                break;
            }
        }
        let bytes = rest.get(..at.checked_add(length)?)?;
        rest = &rest[bytes.len()..];
        Some(Section { id, bytes })
    })
}
