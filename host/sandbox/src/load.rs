//! Loading: from bytes to a policy whose imports, exports, role and manifest are as the contract wants them.

use std::sync::mpsc;
use std::time::Duration;

use polity_core::binding::{Limits, PolicyId};
use polity_core::contract::Role;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker};

use crate::convert;
use crate::policy::{Policy, World};
use crate::state::State;
use crate::wit::{identity, lifecycle, retry};

/// The contract's package and version, as imports and exports carry it.
const PACKAGE: &str = "polity:policy/";
const VERSION: &str = "@0.1.0";

/// Why bytes are not a policy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The engine cannot be set up on this machine.
    #[error("the WebAssembly engine cannot be set up: {0}")]
    Engine(String),
    /// There are no bytes.
    #[error("it is empty")]
    Empty,
    /// It does not begin as a wasm file does.
    #[error("it is not WebAssembly: it does not begin with the bytes 00 61 73 6d")]
    NotWasm,
    /// Too many bytes.
    #[error("it has {size} bytes, at most {largest} are taken")]
    TooLarge {
        /// How many it has.
        size: usize,
        /// How many are taken.
        largest: usize,
    },
    /// A core module without the contract's description.
    #[error("it is not a policy: {0}")]
    NotComponent(String),
    /// Truncated, or not valid.
    #[error("it does not compile: {0}")]
    Compile(String),
    /// Compiling takes too long.
    #[error("compiling it takes more than {} s", .0.as_secs())]
    CompileTime(Duration),
    /// It wants something that no policy gets.
    #[error("it imports {0}, and a policy may import nothing but polity:policy/diagnostics{VERSION}")]
    Import(String),
    /// It answers no question of the contract.
    #[error(
        "it exports {found}, and a policy exports polity:policy/policy-info{VERSION} and one of lifecycle, identity, retry"
    )]
    Export {
        /// What it exports.
        found: String,
    },
    /// Its `describe` broke the contract.
    #[error("its describe failed: {0}")]
    Describe(String),
    /// Its manifest names another role than it exports.
    #[error("its manifest says {said:?}, and it exports {exported:?}")]
    Role {
        /// What the manifest says.
        said: Role,
        /// What it exports.
        exported: Role,
    },
}

impl LoadError {
    pub(crate) fn engine(e: wasmtime::Error) -> Self {
        LoadError::Engine(format!("{e:#}"))
    }
}

/// Loads a policy and asks it for its manifest.
pub(crate) fn load(
    engine: &Engine,
    id: PolicyId,
    bytes: &[u8],
    compile_time: Duration,
) -> Result<Policy, LoadError> {
    let component = compile(engine, bytes, compile_time)?;
    check_imports(engine, &component)?;
    let role = role(engine, &component)?;
    let (world, limits) = (link(engine, &component, role)?, Limits::default());
    let manifest = world.describe(engine, &limits).map_err(LoadError::Describe)?;
    if manifest.role != role {
        return Err(LoadError::Role {
            said: manifest.role,
            exported: role,
        });
    }
    Ok(Policy::new(id, engine.clone(), world, manifest))
}

/// Compiles on a thread of its own: one that takes too long is left behind and ends by itself, its size being bounded.
/// The tools that read a policy are not all made for hostile bytes: a panic of theirs is a refusal, not ours to die of.
fn compile(engine: &Engine, bytes: &[u8], limit: Duration) -> Result<Component, LoadError> {
    let (sender, receiver) = mpsc::channel();
    let (engine, bytes) = (engine.clone(), bytes.to_vec());
    std::thread::spawn(move || {
        let compiled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let component = componentise(&bytes)?;
            Component::from_binary(&engine, &component).map_err(|e| LoadError::Compile(format!("{e:#}")))
        }));
        let damaged =
            || LoadError::Compile("it is damaged in a way that stopped the tools reading it".into());
        let _ = sender.send(compiled.unwrap_or_else(|_| Err(damaged())));
    });
    match receiver.recv_timeout(limit) {
        Ok(compiled) => compiled,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(LoadError::CompileTime(limit)),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(LoadError::Compile("the compiler failed".into())),
    }
}

/// A core module carries a description of its component in a custom section; a component is taken as it is.
fn componentise(bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    if bytes.is_empty() {
        return Err(LoadError::Empty);
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(LoadError::NotWasm);
    }
    match bytes.get(4..8) {
        Some([1, 0, 0, 0]) => wit_component::ComponentEncoder::default()
            .validate(true)
            .module(bytes)
            .and_then(|encoder| encoder.encode())
            .map_err(|e| LoadError::NotComponent(format!("{e:#}"))),
        Some([_, _, 1, 0]) => Ok(bytes.to_vec()),
        Some(_) => Err(LoadError::Compile(
            "it is of another version of WebAssembly".into(),
        )),
        None => Err(LoadError::Compile("it ends in the middle of its header".into())),
    }
}

fn check_imports(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    let diagnostics = format!("{PACKAGE}diagnostics{VERSION}");
    for (name, import) in component.component_type().imports(engine) {
        let only_types = match &import.ty {
            ComponentItem::ComponentInstance(instance) => instance
                .exports(engine)
                .all(|(_, export)| matches!(export.ty, ComponentItem::Type(_))),
            _ => false,
        };
        if !only_types && name != diagnostics {
            return Err(LoadError::Import(name.to_owned()));
        }
    }
    Ok(())
}

fn role(engine: &Engine, component: &Component) -> Result<Role, LoadError> {
    let exports: Vec<String> = component
        .component_type()
        .exports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    let has = |name: &str| exports.contains(&format!("{PACKAGE}{name}{VERSION}"));
    let roles: Vec<Role> = [
        ("lifecycle", Role::Lifecycle),
        ("identity", Role::Identity),
        ("retry", Role::Retry),
    ]
    .into_iter()
    .filter(|(name, _)| has(name))
    .map(|(_, role)| role)
    .collect();
    match roles[..] {
        [role] if has("policy-info") => Ok(role),
        _ => {
            let found = if exports.is_empty() {
                "nothing".into()
            } else {
                exports.join(", ")
            };
            Err(LoadError::Export { found })
        }
    }
}

fn link(engine: &Engine, component: &Component, role: Role) -> Result<World, LoadError> {
    let mut linker: Linker<State> = Linker::new(engine);
    let linked = lifecycle::LifecyclePolicy::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)
        .and_then(|()| linker.instantiate_pre(component))
        .and_then(|pre| {
            Ok(match role {
                Role::Lifecycle => World::Lifecycle(lifecycle::LifecyclePolicyPre::new(pre)?),
                Role::Identity => World::Identity(identity::IdentityPolicyPre::new(pre)?),
                Role::Retry => World::Retry(retry::RetryPolicyPre::new(pre)?),
            })
        });
    linked.map_err(|e| LoadError::NotComponent(format!("{e:#}")))
}

/// A manifest whose texts are what they should be.
pub(crate) fn described<M>(
    manifest: M,
    read: impl FnOnce(M) -> Result<polity_core::contract::Manifest, convert::ManifestError>,
) -> Result<polity_core::contract::Manifest, String> {
    read(manifest).map_err(|e| {
        let source = std::error::Error::source(&e)
            .map(|s| format!(": {s}"))
            .unwrap_or_default();
        format!("{e}{source}")
    })
}
