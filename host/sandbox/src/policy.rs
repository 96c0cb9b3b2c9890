//! A loaded policy, and one call into it.

use std::sync::Arc;

use polity_core::binding::{Limits, PolicyId};
use polity_core::contract::{Manifest, Pass, RetryRequest, Role, Step, Wait};
use polity_core::fault::{Fault, FaultKind, Stepped};
use wasmtime::{Engine, Store, Trap, WasmBacktrace};

use crate::convert;
use crate::error::cut;
use crate::manifest;
use crate::memory::NoMemory;
use crate::settings::EPOCH;
use crate::state::{HANDLES, OutOfMemory, State};
use crate::wit::{identity, lifecycle, retry};

/// A loaded policy: compiled, linked, and known by what it says of itself.
pub struct Policy {
    id: PolicyId,
    engine: Engine,
    world: World,
    manifest: Arc<Manifest>,
    sizes: Sizes,
}

/// What a policy costs in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes that the instances of a step take beside their memories and tables.
    pub(crate) instances: u64,
    /// Bytes of all that with which a step begins.
    pub(crate) memory: u64,
    /// Bytes of machine code and what belongs to it.
    pub(crate) code: usize,
}

/// A component linked as one of the three worlds.
pub(crate) enum World {
    Lifecycle(lifecycle::LifecyclePolicyPre<State>),
    Identity(identity::IdentityPolicyPre<State>),
    Retry(retry::RetryPolicyPre<State>),
}

impl World {
    /// The policy's manifest as text: what its bytes hold, or what it answers under the default limits. Notes the bytes of
    /// memory that a step begins with.
    pub(crate) fn describe(
        &self,
        engine: &Engine,
        limits: &Limits,
        sizes: &mut Sizes,
        held: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        let mut store = store(engine, limits, sizes.instances);
        store.set_hostcall_fuel(manifest::LARGEST);
        // Instantiated even where nothing is asked: a step begins with that.
        let text = match self {
            World::Lifecycle(pre) => pre.instantiate(&mut store).and_then(|i| {
                said(&mut store, sizes, held, |s| {
                    i.polity_policy_policy_info().call_describe(s)
                })
            }),
            World::Identity(pre) => pre.instantiate(&mut store).and_then(|i| {
                said(&mut store, sizes, held, |s| {
                    i.polity_policy_policy_info().call_describe(s)
                })
            }),
            World::Retry(pre) => pre.instantiate(&mut store).and_then(|i| {
                said(&mut store, sizes, held, |s| {
                    i.polity_policy_policy_info().call_describe(s)
                })
            }),
        };
        text.map_err(|e| fault(&e, store.data()).to_string())
    }
}

/// The manifest of an instance that has just been made. Notes the bytes of memory that it begins with.
fn said(
    store: &mut Store<State>,
    sizes: &mut Sizes,
    held: Option<&[u8]>,
    describe: impl FnOnce(&mut Store<State>) -> wasmtime::Result<String>,
) -> wasmtime::Result<Vec<u8>> {
    sizes.memory = store.data().held();
    match held {
        Some(held) => Ok(held.to_vec()),
        None => describe(store).map(String::into_bytes),
    }
}

impl Policy {
    pub(crate) fn new(id: PolicyId, engine: Engine, world: World, manifest: Manifest, sizes: Sizes) -> Self {
        Policy {
            id,
            engine,
            world,
            manifest: Arc::new(manifest),
            sizes,
        }
    }

    /// The sha256 of the bytes it was loaded from.
    pub fn id(&self) -> &PolicyId {
        &self.id
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Bytes of memories, tables and instances with which each of its steps begins.
    pub fn memory(&self) -> u64 {
        self.sizes.memory
    }

    /// Bytes of its machine code and what belongs to it.
    pub(crate) fn code(&self) -> usize {
        self.sizes.code
    }

    /// The question it answers.
    pub fn role(&self) -> Role {
        self.manifest.role
    }

    /// One step of a pass, in a fresh instance. For the lifecycle and identity roles.
    pub fn step(&self, pass: &Pass, limits: &Limits) -> Stepped {
        let mut store = store(&self.engine, limits, self.sizes.instances);
        let parts = convert::pass(pass);
        let returned = match &self.world {
            World::Lifecycle(pre) => pre.instantiate(&mut store).and_then(|instance| {
                let lifecycle = instance.polity_policy_lifecycle();
                parts
                    .with(|pass| lifecycle.call_step(&mut store, pass))
                    .map(convert::step)
            }),
            World::Identity(pre) => pre.instantiate(&mut store).and_then(|instance| {
                let identity = instance.polity_policy_identity();
                parts
                    .with(|pass| identity.call_step(&mut store, pass))
                    .map(convert::identity_step)
            }),
            World::Retry(_) => Err(wasmtime::Error::msg("a retry policy takes no steps")),
        };
        stepped(returned, &store, limits)
    }

    /// How long until the next try, and the fuel used. For the retry role.
    pub fn decide(&self, request: &RetryRequest, limits: &Limits) -> (Result<Wait, Fault>, u64) {
        let mut store = store(&self.engine, limits, self.sizes.instances);
        let decided = match &self.world {
            World::Retry(pre) => pre.instantiate(&mut store).and_then(|instance| {
                instance
                    .polity_policy_retry()
                    .call_decide(&mut store, &convert::retry_request(request))
                    .map(convert::wait)
            }),
            _ => Err(wasmtime::Error::msg(
                "only a retry policy decides how long to wait",
            )),
        };
        let fuel = used(&store, limits);
        (decided.map_err(|e| fault(&e, store.data())), fuel)
    }

    /// An instance that is called again and again: what a host would use that does not start each step fresh.
    /// For benchmarks only.
    pub fn reused(&self, limits: &Limits) -> Result<ReusedInstance, Fault> {
        let mut store = store(&self.engine, limits, self.sizes.instances);
        let instance = match &self.world {
            World::Lifecycle(pre) => pre.instantiate(&mut store),
            _ => Err(wasmtime::Error::msg(
                "only lifecycle policies are measured this way",
            )),
        };
        match instance {
            Ok(instance) => Ok(ReusedInstance {
                store,
                instance,
                limits: limits.clone(),
            }),
            Err(e) => Err(fault(&e, store.data())),
        }
    }
}

/// An instance that keeps its memory between steps. For benchmarks only.
pub struct ReusedInstance {
    store: Store<State>,
    instance: lifecycle::LifecyclePolicy,
    limits: Limits,
}

impl ReusedInstance {
    /// One step, in the memory that the last one left.
    pub fn step(&mut self, pass: &Pass) -> Stepped {
        let refuelled = self.store.set_fuel(self.limits.step_fuel);
        let parts = convert::pass(pass);
        let lifecycle = self.instance.polity_policy_lifecycle();
        let returned = refuelled
            .and_then(|()| parts.with(|pass| lifecycle.call_step(&mut self.store, pass)))
            .map(convert::step);
        stepped(returned, &self.store, &self.limits)
    }
}

/// Epochs of the longest step: some thousand years, and no sum with the epoch that it begins in overflows.
const EPOCHS: u64 = 1 << 48;

/// A store with one step's limits, for instances that take so many bytes beside their memories and tables.
fn store(engine: &Engine, limits: &Limits, instances: u64) -> Store<State> {
    let mut store = Store::new(engine, State::new(limits.memory, instances));
    store.limiter(|state| state);
    // Fuel is always on in this engine.
    let _ = store.set_fuel(limits.step_fuel);
    store.set_epoch_deadline(limits.step_wall.div_ceil(EPOCH).saturating_add(1).min(EPOCHS));
    store.set_max_component_handles(HANDLES);
    store.set_hostcall_fuel(
        usize::try_from(limits.output)
            .unwrap_or(usize::MAX)
            .saturating_mul(4),
    );
    store
}

fn used(store: &Store<State>, limits: &Limits) -> u64 {
    limits.step_fuel.saturating_sub(store.get_fuel().unwrap_or(0))
}

fn stepped(returned: wasmtime::Result<Step>, store: &Store<State>, limits: &Limits) -> Stepped {
    let outcome = match returned {
        Ok(step) => match Count::of(&step) {
            size if size > limits.output => Err(Fault::new(
                FaultKind::BadOutput,
                format!("it returned {size} bytes, {} are allowed", limits.output),
            )),
            _ => Ok(step),
        },
        Err(e) => Err(fault(&e, store.data())),
    };
    Stepped {
        outcome,
        fuel: used(store, limits),
    }
}

/// Counts what is written to it.
#[derive(Default)]
struct Count(u64);

impl Count {
    fn of(step: &Step) -> u64 {
        let mut count = Count::default();
        // Writing into a counter cannot fail.
        let _ = serde_json::to_writer(&mut count, step);
        count.0
    }
}

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How wasmtime says that a step has too many instances, memories or tables.
const TOO_MANY: &str = "resource limit exceeded";

/// What broke: which trap, in which function, with the guest's own words if it panicked.
fn fault(e: &wasmtime::Error, state: &State) -> Fault {
    if let Some(out_of_memory) = state.begins_beyond().as_ref().or(e.downcast_ref()) {
        let out_of_memory: &OutOfMemory = out_of_memory;
        return Fault::new(FaultKind::OutOfMemory, out_of_memory.to_string());
    }
    if let Some(none) = e.downcast_ref::<NoMemory>() {
        return Fault {
            kind: FaultKind::OutOfMemory,
            message: none.to_string(),
            deterministic: false,
        };
    }
    let place = e
        .downcast_ref::<WasmBacktrace>()
        .and_then(|trace| trace.frames().iter().find_map(|frame| frame.func_name()))
        .map(|name| format!(" in {}", cut(demangled(name).to_owned())))
        .unwrap_or_default();
    let Some(trap) = e.downcast_ref::<Trap>() else {
        let words = cut(format!("{e:#}"));
        let kind = match words.contains(TOO_MANY) {
            true => FaultKind::OutOfMemory,
            false => FaultKind::BadOutput,
        };
        return Fault::new(kind, words);
    };
    match (trap, &state.panic) {
        (Trap::OutOfFuel, _) => Fault::new(FaultKind::OutOfFuel, format!("out of fuel{place}")),
        (Trap::Interrupt, _) => Fault {
            kind: FaultKind::WallTime,
            message: format!("it ran longer than a step may{place}"),
            deterministic: false,
        },
        (Trap::StackOverflow, _) => Fault {
            kind: FaultKind::Trap,
            message: format!("stack overflow{place}"),
            deterministic: false,
        },
        (_, Some((message, location))) => {
            Fault::new(FaultKind::Trap, format!("panicked at {location}: {message}"))
        }
        (trap, None) => Fault::new(FaultKind::Trap, format!("{trap}{place}")),
    }
}

/// The readable part of a Rust symbol; the hash at its end says nothing to a person.
fn demangled(name: &str) -> &str {
    name.rsplit_once("::h")
        .filter(|(_, hash)| hash.len() == 16)
        .map_or(name, |(name, _)| name)
}
