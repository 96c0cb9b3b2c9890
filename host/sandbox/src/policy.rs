//! A loaded policy, and one call into it.

use std::sync::Arc;

use polity_core::binding::{Limits, PolicyId};
use polity_core::contract::{Manifest, Pass, RetryRequest, Role, Step, Wait};
use polity_core::fault::{Fault, FaultKind, StepOutput};
use polity_core::time::millis;
use wasmtime::component::Component;
use wasmtime::{Engine, Store, Trap, WasmBacktrace};

use crate::convert;
use crate::error::cut;
use crate::memory::NoMemory;
use crate::settings::EPOCH;
use crate::state::{HANDLES, OutOfMemory, State};
use crate::wit::{identity, lifecycle, retry};
use crate::{load, manifest};

/// A loaded policy: compiled, linked, and with its manifest read.
pub struct Policy {
    id: PolicyId,
    engine: Engine,
    world: World,
    manifest: Arc<Manifest>,
    sizes: Sizes,
}

/// The sizes of a policy in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The bytes that the instances of a step take, without their memories and tables.
    pub(crate) instances: u64,
    /// The bytes with which a step begins.
    pub(crate) memory: u64,
    /// The bytes of machine code and of the data that belongs to it.
    pub(crate) code: usize,
}

/// A component that is linked as one of the three worlds.
pub(crate) enum World {
    Lifecycle(lifecycle::LifecyclePolicyPre<State>),
    Identity(identity::IdentityPolicyPre<State>),
    Retry(retry::RetryPolicyPre<State>),
}

impl World {
    /// Returns the policy's manifest as text: from its bytes if they hold it, otherwise by asking it under
    /// the default limits. Notes in `sizes` how much memory a step begins with.
    pub(crate) fn describe(
        &self,
        engine: &Engine,
        limits: &Limits,
        sizes: &mut Sizes,
        held: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        let mut store = store(engine, limits, sizes.instances);
        store.set_hostcall_fuel(manifest::LARGEST);
        // The policy is instantiated even if it is not asked, to measure the memory with which a step begins.
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
        text.map_err(|e| fault(&e, store.data(), "").to_string())
    }

    fn component(&self) -> &Component {
        match self {
            World::Lifecycle(pre) => pre.instance_pre().component(),
            World::Identity(pre) => pre.instance_pre().component(),
            World::Retry(pre) => pre.instance_pre().component(),
        }
    }
}

/// The manifest of a new instance. Notes in `sizes` how much memory the instance begins with.
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

    /// The SHA-256 of the bytes from which the policy was loaded.
    pub fn id(&self) -> &PolicyId {
        &self.id
    }

    /// The policy's manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The names of the interfaces whose functions the policy imports.
    pub fn imports(&self) -> Vec<String> {
        load::imports(&self.engine, self.world.component())
    }

    /// The bytes of memories, tables and instances with which each step begins.
    pub fn memory(&self) -> u64 {
        self.sizes.memory
    }

    /// The bytes of machine code and of the data that belongs to it.
    pub fn code(&self) -> usize {
        self.sizes.code
    }

    /// The policy's role.
    pub fn role(&self) -> Role {
        self.manifest.role
    }

    /// Runs one step of a pass in a fresh instance. For the roles lifecycle and identity.
    pub fn step(&self, pass: &Pass, limits: &Limits) -> StepOutput {
        let mut store = store(&self.engine, limits, self.sizes.instances);
        let returned = self.step_in(&mut store, pass);
        stepped(returned, &store, limits, &self.manifest)
    }

    /// What a step says to the author of the policy (`debug.say`): some hundred messages of some thousand characters. Returns
    /// the fuel that was used, too.
    pub fn debug(&self, pass: &Pass, limits: &Limits) -> (Vec<String>, u64) {
        let mut store = store(&self.engine, limits, self.sizes.instances);
        store.data_mut().debug = Some(Vec::new());
        // How the step ends is known, and what it said before a fault is of interest, too.
        let _ = self.step_in(&mut store, pass);
        let said = store.data_mut().debug.take().unwrap_or_default();
        (said, used(&store, limits))
    }

    fn step_in(&self, store: &mut Store<State>, pass: &Pass) -> wasmtime::Result<Step> {
        let parts = convert::pass(pass);
        match &self.world {
            World::Lifecycle(pre) => pre.instantiate(&mut *store).and_then(|instance| {
                let lifecycle = instance.polity_policy_lifecycle();
                parts
                    .with(|pass| lifecycle.call_step(&mut *store, pass))
                    .map(convert::step)
            }),
            World::Identity(pre) => pre.instantiate(&mut *store).and_then(|instance| {
                let identity = instance.polity_policy_identity();
                parts
                    .with(|pass| identity.call_step(&mut *store, pass))
                    .map(convert::identity_step)
            }),
            World::Retry(_) => Err(wasmtime::Error::msg("a retry policy takes no steps")),
        }
    }

    /// Asks a retry policy for the wait until the next try. Returns the wait and the fuel that was used.
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
        let decided = decided.map_err(|e| fault_of(&e, store.data(), &krate(&self.manifest)));
        (decided, fuel)
    }

    /// An instance that is used for several steps. It shows the cost of fresh instances. For benchmarks only.
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
                manifest: self.manifest.clone(),
            }),
            Err(e) => Err(fault(&e, store.data(), "")),
        }
    }
}

/// An instance that keeps its memory between steps. For benchmarks only.
pub struct ReusedInstance {
    store: Store<State>,
    instance: lifecycle::LifecyclePolicy,
    limits: Limits,
    manifest: Arc<Manifest>,
}

impl ReusedInstance {
    /// Runs a step in the memory that the last step left.
    pub fn step(&mut self, pass: &Pass) -> StepOutput {
        let refuelled = self.store.set_fuel(self.limits.step_fuel);
        let parts = convert::pass(pass);
        let lifecycle = self.instance.polity_policy_lifecycle();
        let returned = refuelled
            .and_then(|()| parts.with(|pass| lifecycle.call_step(&mut self.store, pass)))
            .map(convert::step);
        stepped(returned, &self.store, &self.limits, &self.manifest)
    }
}

/// The most epochs of a step: some thousand years. Added to the present epoch it does not overflow.
const EPOCHS: u64 = 1 << 48;

/// A store with the limits of one step. `instances` are the bytes of instances without memories and tables.
fn store(engine: &Engine, limits: &Limits, instances: u64) -> Store<State> {
    let mut store = Store::new(engine, State::new(limits.memory, instances));
    store.limiter(|state| state);
    // Setting fuel fails only if the engine does not count it; this one does.
    let _ = store.set_fuel(limits.step_fuel);
    store.set_epoch_deadline(
        millis(limits.step_wall)
            .div_ceil(EPOCH)
            .saturating_add(1)
            .min(EPOCHS),
    );
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

fn stepped(
    returned: wasmtime::Result<Step>,
    store: &Store<State>,
    limits: &Limits,
    manifest: &Manifest,
) -> StepOutput {
    let outcome = match returned {
        Ok(step) => match Count::of(&step) {
            size if size > limits.output => Err(Fault::new(
                FaultKind::BadOutput,
                format!(
                    "the step returned {size} bytes; the limit is {} (spec.limits.output of the binding)",
                    limits.output
                ),
            )),
            _ => Ok(step),
        },
        Err(e) => Err(fault_of(&e, store.data(), &krate(manifest))),
    };
    StepOutput {
        outcome,
        fuel: used(store, limits),
    }
}

/// Counts the bytes that are written to it.
#[derive(Default)]
struct Count(u64);

impl Count {
    fn of(step: &Step) -> u64 {
        let mut count = Count::default();
        // Writing to a counter cannot fail.
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

/// The words of wasmtime for a step with too many instances, memories or tables.
const TOO_MANY: &str = "resource limit exceeded";

/// The crate of a policy, as its functions are named: policies are named by their packages.
fn krate(manifest: &Manifest) -> String {
    manifest.name.replace('-', "_")
}

/// The fault of a policy of this crate, with the limit of the binding that it met.
fn fault_of(e: &wasmtime::Error, state: &State, krate: &str) -> Fault {
    let mut fault = fault(e, state, krate);
    let limit = match fault.kind {
        FaultKind::OutOfFuel => Some("stepFuel"),
        FaultKind::WallTime => Some("stepWall"),
        FaultKind::OutOfMemory if fault.deterministic => Some("memory"),
        _ => None,
    };
    if let Some(limit) = limit {
        fault
            .message
            .push_str(&format!("; spec.limits.{limit} of the binding raises the limit"));
    }
    fault
}

/// The fault for an error of a step: which trap, in which function, and the guest's own message if it
/// panicked. `krate` is the crate of its author; empty if it is not known.
pub(crate) fn fault(e: &wasmtime::Error, state: &State, krate: &str) -> Fault {
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
    let trace = e.downcast_ref::<WasmBacktrace>();
    let frames: Vec<String> = trace
        .into_iter()
        .flat_map(WasmBacktrace::frames)
        .filter_map(|frame| frame.func_name())
        .map(demangled)
        .collect();
    let author = author(&frames, krate);
    let place = match (frames.first(), author) {
        (Some(inner), Some(author)) if inner != author => format!(" in {inner}, called by {author}"),
        (Some(inner), _) => format!(" in {inner}"),
        (None, _) => String::new(),
    };
    let place = cut(place);
    let Some(trap) = e.downcast_ref::<Trap>() else {
        let words = cut(format!("{e:#}"));
        let kind = if words.contains(TOO_MANY) {
            FaultKind::OutOfMemory
        } else {
            FaultKind::BadOutput
        };
        return Fault::new(kind, words);
    };
    match (trap, &state.panic) {
        (Trap::OutOfFuel, _) => Fault::new(FaultKind::OutOfFuel, format!("out of fuel{place}")),
        (Trap::Interrupt, _) => Fault {
            kind: FaultKind::WallTime,
            message: format!("the step ran longer than its limit{place}"),
            deterministic: false,
        },
        (Trap::StackOverflow, _) => Fault {
            kind: FaultKind::Trap,
            message: format!("stack overflow{place}"),
            deterministic: false,
        },
        (_, Some((message, location))) => {
            // A place in a library says little to the author of the policy.
            let author = author.filter(|_| location.starts_with('/'));
            let within = author.map_or_else(String::new, |author| format!(", called by {author}"));
            Fault::new(
                FaultKind::Trap,
                format!("panicked at {location}{within}: {message}"),
            )
        }
        (trap, None) => Fault::new(FaultKind::Trap, format!("{trap}{place}")),
    }
}

/// The innermost function of the crate of a policy's author.
fn author<'a>(frames: &'a [String], krate: &str) -> Option<&'a String> {
    let is_own = |frame: &&String| {
        let own = frame.trim_start_matches('<').strip_prefix(krate);
        !krate.is_empty() && own.is_some_and(|rest| rest.starts_with("::"))
    };
    frames.iter().find(is_own)
}

/// The readable part of a Rust symbol, without the hash at its end.
fn demangled(name: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    let hash = name.rsplit_once("::h").filter(|(_, hash)| hash.len() == 16);
    hash.map_or(name.as_str(), |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable_and_the_innermost_one_of_the_author_is_known() {
        let mangled = [
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "polity_sdk::step::lifecycle::h0123456789abcdef",
            "_RNvNtCs1234_12capv_machine4task4look",
            "capv_machine::reconcile::{{closure}}::h0123456789abcdef",
        ];
        let frames = mangled.map(demangled);
        assert_eq!(
            frames,
            [
                "core::fmt::write",
                "polity_sdk::step::lifecycle",
                "capv_machine::task::look",
                "capv_machine::reconcile::{{closure}}"
            ]
        );
        assert_eq!(author(&frames, "capv_machine"), Some(&frames[2]));
        assert_eq!(author(&frames, "capv"), None);
        assert_eq!(author(&frames, ""), None);
    }
}
