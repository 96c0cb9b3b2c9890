//! The controller: inputs in, outputs out.
//!
//! ```text
//! watch event ─► triggers ─► queue ─► passes ⇄ reconcile ─► finish ─► queue
//!                 cache                 calls    (phases)   reschedule
//! ```
//!
//! The controller holds keys, calls, watches and the lease. The module `reconcile` decides what one pass does next. A
//! pass is taken out of the map while one of its events is handled, and its commands are performed after the handler
//! has returned. So a handler reads shared state and never changes it.

mod calls;
mod change_view;
mod finish;
mod freshness;
mod keys;
mod lock_waiters;
mod passes;
mod rate_limit;
mod refresh;
mod reschedule;
#[cfg(test)]
mod tests;
mod triggers;
mod wake_index;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::binding::{Binding, PolicyId};
use crate::call::{Call, CallId, Reply, Scope, WatchEvent, Write};
use crate::contract::Cause;
use crate::fault::Fault;
use crate::key::{Key, PassId};
use crate::reconcile::{Phase, PhaseEvent, primary_scopes};
use crate::record::{Outcome, PassRecord};
use crate::time::{Boot, Now, Unix};

use keys::KeyState;
pub use keys::{KeyView, WaitReason};
use passes::RunningPass;
use wake_index::WakeIndex;

use crate::shared::Shared;
pub use crate::shared::capacity::{Capacities, Capacity};
pub use crate::shared::guards::{Guard, Guards};
pub use crate::shared::lease;
use crate::shared::lease::{Lease, LeaseAction, LeaseProblem};
use crate::shared::queue::Queue;
use crate::shared::terms::NotSent;

/// An event that the controller handles.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Only time has passed: timers and deadlines may be due.
    Tick,
    /// A binding was created or changed.
    Bound(Box<Binding>),
    /// The binding of this name was removed.
    Unbound(String),
    /// A watch sent an event.
    Watched {
        /// The kind, namespace and name that the watch covers.
        scope: Scope,
        /// The list, change or failure that the watch reports.
        event: WatchEvent,
    },
    /// A call ended.
    Returned {
        /// The id of the [`Output::Call`] that ended.
        call: CallId,
        /// The result of the call.
        reply: Reply,
    },
    /// Finish the passes in flight, give the lease up, and stop.
    Stop,
    /// Start no pass. End each pass as soon as none of its effects is in flight, give the lease up, and stop.
    Cut,
}

/// A command to the host.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub enum Output {
    /// Make this call. Its reply comes back as [`Input::Returned`].
    Call {
        /// The id under which the reply comes back.
        id: CallId,
        /// The request to a policy, a cloud or the API server.
        call: Call,
        /// The tenant queue for which the call is made. Calls for the lease are made for none.
        tenant_queue: Option<Arc<str>>,
        /// The pass that waits for the reply, if a pass does.
        pass: Option<PassId>,
        /// If the call changes something: no request that changes may begin from this moment on (`Lease::begin_by`).
        begin_by: Boot,
    },
    /// Cancel a call: its deadline has passed, or its pass has ended.
    Cancel(CallId),
    /// Open a watch of this scope.
    Watch(Scope),
    /// Close the watch of this scope: no key depends on it any more.
    Unwatch(Scope),
    /// Write a Kubernetes Event, unless too many wait already.
    Event(Box<EventWrite>),
    /// A pass ended. This is its recording.
    Recorded(Box<PassRecord>),
    /// An object is gone or no longer governed, and its last pass has ended. The host may drop all data about this
    /// key.
    Forgotten(Key),
    /// No call is in flight and the lease is given up. The host may exit.
    Stopped,
}

/// A Kubernetes Event to be written. A lost one is accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct EventWrite {
    /// The tenant queue whose pass it is about.
    pub tenant_queue: Arc<str>,
    /// The binding of that pass.
    pub binding: Arc<str>,
    /// The write must begin before this.
    pub begin_by: Boot,
    /// The write.
    pub write: Write,
}

/// What the cache holds, and how its watches stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Watches that show everything.
    pub synced: usize,
    /// Watches that have not listed, or failed since.
    pub failing: usize,
    /// Objects; one that two watches show counts twice.
    pub objects: usize,
    /// Bytes of their text.
    pub bytes: usize,
}

/// Health of a binding, as shown in its status.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The number of passes that ended.
    pub passes: u64,
    /// The number of passes that ended without a conclusion, because the world changed under them.
    pub discarded: u64,
    /// The number of acts performed.
    pub acts: u64,
    /// The number of faults of the binding's policies.
    pub faults: u64,
    /// The number of Events that were not written because too many of the same tenant waited. The host that writes them counts
    /// them.
    pub events_dropped: u64,
    /// The last fault since the binding changed.
    pub last_fault: Option<LastFault>,
    /// The last wait of a retry policy that the host had to clamp since the binding changed, and the object that it
    /// concerns.
    pub clamped: Option<(Key, String)>,
    /// Requests of the binding's policies that no grant of the binding allows.
    pub ungranted: BTreeSet<String>,
    /// Written fields that the API server did not keep, each with an object that it concerns. Such a field is not in
    /// the CRD, or the CRD sets another default.
    pub not_kept: BTreeMap<String, Key>,
    /// The name of an older binding that governs some of the same objects. The older binding wins.
    pub overlapped_by: Option<String>,
    /// The watches that the binding needs and that are not synced, each with its error if there is one.
    pub unsynced: BTreeSet<String>,
    /// Whether one of these watches has an error. The others list for the first time, or again.
    pub watch_fails: bool,
    /// The number of objects that the binding governs now.
    pub objects: u64,
    /// The number of these objects whose last pass failed. Each has another pass later.
    pub retrying: u64,
    /// Some of these objects, each with the reason, at most [`RETRIES`].
    pub retries: Vec<(Key, String)>,
}

/// The most objects that the health of a binding names because their last pass failed. People look at a few, and each
/// name costs room in the status of the binding.
pub const RETRIES: usize = 20;

/// The last fault of a binding's policies.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastFault {
    /// The object that it concerns.
    pub key: Key,
    /// The fault.
    pub fault: Fault,
    /// When its pass ended.
    pub at: Unix,
}

/// The deterministic core: inputs go in, outputs come out. It has no clock, no I/O and no randomness.
pub struct Controller {
    out: Vec<Output>,
    shared: Shared,
    keys: Keys,
    passes: Passes,
    health: BTreeMap<Arc<str>, Health>,
    was_held: bool,
    /// The key of the digests of answers. It keeps others from crafting two answers with the same digest.
    digest_key: [u8; 16],
    next_sweep: Boot,
    stopping: bool,
}

/// The objects that bindings govern, and what each waits for.
#[derive(Default)]
struct Keys {
    /// Each state is boxed. Keys often arrive in sorted order, which leaves the nodes of the map half empty, and
    /// large values would waste that half.
    states: BTreeMap<Key, Box<KeyState>>,
    /// Keys that were forgotten while their pass was in flight. If such a key comes back, it waits for the end of
    /// that pass: a key never has two passes at a time.
    orphans: BTreeMap<Key, PassId>,
    /// The keys that depend on objects of a scope.
    wake_index: BTreeMap<Scope, WakeIndex>,
    queue: Queue,
}

/// The passes in flight.
#[derive(Default)]
struct Passes {
    in_flight: BTreeMap<PassId, (Phase, Box<RunningPass>)>,
    last: u64,
    /// Those that have an answer about objects of a scope. Few of many passes that wait for one watch have.
    answered: BTreeMap<Scope, BTreeSet<PassId>>,
    /// Those that may hold texts of any size now.
    grown: VecDeque<PassId>,
    /// Those with a change that was not sent, and why.
    not_sent: VecDeque<(PassId, NotSent)>,
    /// The end of the lease when the changes that it did not cover were last looked at.
    covered_until: Option<Boot>,
}

impl Controller {
    /// A controller that competes for the lease as `identity`, which must differ between processes.
    pub fn new(identity: impl Into<String>) -> Self {
        let identity = identity.into();
        Controller {
            digest_key: digest_key(&identity),
            out: Vec::new(),
            shared: Shared {
                lease: Lease::new(identity),
                ..Shared::default()
            },
            keys: Keys::default(),
            passes: Passes::default(),
            health: BTreeMap::new(),
            was_held: false,
            next_sweep: Boot::default(),
            stopping: false,
        }
    }

    /// The same controller without a lease: no other host acts on the same objects.
    pub fn alone(mut self) -> Self {
        self.shared.lease = Lease::alone();
        self
    }

    /// Replaces what all bindings share.
    pub fn with_capacities(mut self, capacities: Capacities) -> Self {
        self.shared.capacities = capacities;
        self
    }

    /// Replaces the guards, so that a simulation can run without one of them.
    #[cfg(feature = "simulation")]
    pub fn set_guards(&mut self, guards: Guards) {
        self.shared.guards = guards;
    }

    /// Handles one input at the time `now`. Returns the outputs in the order in which the host must take them up.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Output> {
        self.shared.now = now;
        match input {
            Input::Tick => {}
            Input::Bound(binding) => self.bind(*binding),
            Input::Unbound(name) => self.unbind(&name),
            Input::Watched { scope, event } => self.on_watch_event(&scope, event),
            Input::Returned { call, reply } => self.on_returned(call, reply),
            Input::Stop => self.stopping = true,
            Input::Cut => (self.stopping, self.shared.cutting) = (true, true),
        }
        self.advance();
        std::mem::take(&mut self.out)
    }

    /// The latest time at which the host must send [`Input::Tick`] if no other input comes before.
    pub fn deadline(&self) -> Boot {
        let calls = self.shared.calls.next_deadline();
        [
            self.keys.queue.next_timer().filter(|_| self.was_held),
            calls,
            Some(self.next_sweep),
            Some(self.shared.lease.deadline()),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Boot::MAX)
    }

    /// Whether this host holds the lease.
    pub fn is_holder(&self) -> bool {
        self.shared.lease.is_held(self.shared.now)
    }

    /// Why this host does not hold the lease, if the cause is known.
    pub fn lease_problem(&self) -> Option<LeaseProblem> {
        self.shared.lease.problem()
    }

    /// The health of a binding; `None` if there is no binding of this name.
    pub fn health(&self, binding: &str) -> Option<Health> {
        let first = Key {
            binding: binding.into(),
            namespace: None,
            name: "".into(),
        };
        let after = self.keys.states.range(first..);
        let own = after.take_while(|(key, _)| &*key.binding == binding);
        let mut health = self.health.get(binding)?.clone();
        for (key, state) in own {
            health.objects += 1;
            let Some(why) = state.retries() else { continue };
            health.retrying += 1;
            if health.retries.len() < RETRIES {
                health.retries.push((key.clone(), why));
            }
        }
        let unsynced: Vec<&Scope> = self.unsynced_watches(binding).collect();
        health.watch_fails = unsynced
            .iter()
            .any(|scope| self.shared.cache.watch_error(scope).is_some());
        health.unsynced = unsynced
            .iter()
            .map(|scope| self.watch(scope).to_string())
            .collect();
        Some(health)
    }

    /// The unsynced watches that a binding needs: of its primaries, and of the objects that its keys depend on.
    fn unsynced_watches<'a>(&'a self, binding: &'a str) -> impl Iterator<Item = &'a Scope> {
        let own = self
            .shared
            .bindings
            .get(binding)
            .map(|binding| primary_scopes(binding));
        let own = own.unwrap_or_default();
        let needs = move |scope: &&Scope| {
            let dependents = self.keys.wake_index.get(*scope);
            own.contains(*scope) || dependents.is_some_and(|dependents| dependents.has_key_of(binding))
        };
        let unsynced = self
            .shared
            .cache
            .scopes()
            .filter(|scope| !self.shared.cache.is_synced(scope));
        unsynced.filter(needs)
    }

    /// What the cache holds, and how its watches stand.
    pub fn cache_figures(&self) -> CacheFigures {
        let mut figures = CacheFigures::default();
        for scope in self.shared.cache.scopes() {
            if self.shared.cache.is_synced(scope) {
                figures.synced += 1;
            } else {
                figures.failing += 1;
            }
            for object in self.shared.cache.all(scope) {
                figures.objects += 1;
                figures.bytes += object.json().len();
            }
        }
        figures
    }

    /// All bindings, ordered by name.
    pub fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.shared.bindings.values()
    }

    /// The policies that may still be called: those of the bindings, and those of passes that began under an earlier
    /// version of a binding.
    pub fn policies(&self) -> BTreeSet<&PolicyId> {
        let begun = self.passes.in_flight.values().map(|(_, pass)| pass.binding());
        let bindings = self.shared.bindings.values().chain(begun);
        bindings
            .flat_map(|binding| binding.policies.values().map(|policy| &policy.id))
            .collect()
    }

    /// The number of passes in flight.
    pub fn passes_in_flight(&self) -> usize {
        self.passes.in_flight.len()
    }

    /// Does the work that depends on time and on free room. It runs after every input.
    fn advance(&mut self) {
        self.expire_calls();
        self.poll_lease();
        if self.is_holder() {
            for key in self.keys.queue.due(self.shared.now.boot) {
                self.enqueue(&key, Cause::Due);
            }
        }
        if self.shared.cutting {
            self.interrupt_passes(&Outcome::Stopped, |has_change_in_flight| !has_change_in_flight);
        }
        self.start_passes();
        loop {
            if let Some((pass, why)) = self.passes.not_sent.pop_front() {
                self.on_event(pass, PhaseEvent::NotSent(why));
            } else if let Some(pass) = self.passes.grown.pop_front() {
                self.on_event(pass, PhaseEvent::Grown);
            } else {
                break;
            }
            self.start_passes();
        }
        self.sweep();
        if self.stopping && self.passes.in_flight.is_empty() {
            self.shared.lease.give_up();
            self.poll_lease();
            if self.shared.lease.is_given_up() {
                self.out.push(Output::Stopped);
            }
        }
    }

    /// Sends the lease's next call. Enqueues all keys when the lease is gained, because no pass starts and no timer
    /// is served without it. Interrupts all passes when it is lost, because another host may now write.
    fn poll_lease(&mut self) {
        if let LeaseAction::Call(write) = self.shared.lease.poll(self.shared.now) {
            self.send_lease(Call::Lease(write), lease::CALL_LONGEST);
        }
        let held = self.is_holder();
        match (self.was_held, held) {
            (false, true) => {
                self.was_held = true;
                let keys: Vec<Key> = self.keys.states.keys().cloned().collect();
                for key in keys {
                    self.enqueue(&key, Cause::Resync);
                }
            }
            (true, false) => {
                self.was_held = false;
                if self.shared.guards.stand(Guard::Fencing) {
                    self.interrupt_passes(&Outcome::LeaseLost, |_| true);
                }
            }
            _ => {}
        }
        // As long as the lease ends at the same time, a change that it did not cover is not covered later either.
        if held && self.passes.covered_until != self.shared.lease.expires() {
            self.passes.covered_until = self.shared.lease.expires();
            self.admit_uncovered();
        }
    }

    /// Starts passes of queued keys until no tenant queue may start another one.
    fn start_passes(&mut self) {
        if !(self.is_holder() || (!self.shared.guards.stand(Guard::Fencing) && self.was_held))
            || self.stopping
        {
            return;
        }
        loop {
            let bindings = &self.shared.bindings;
            let limit = |key: &Key| {
                let binding = bindings.get(&key.binding);
                binding.map_or(u32::MAX, |binding| binding.spec.limits.passes_per_tenant)
            };
            let all = self.keys.queue.passes();
            let of_all = !self.shared.guards.stand(Guard::TenantsHaveTurnsOfTheirOwn);
            let busy = |passes| if of_all { all } else { passes };
            let may_start = |passes, key: &Key| busy(passes) < limit(key).into();
            let Some((tenant_queue, key)) = self.keys.queue.pop(may_start) else {
                return;
            };
            if !self.start(&key, &tenant_queue) {
                self.keys.queue.passed(&tenant_queue);
            }
        }
    }
}

fn digest_key(identity: &str) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&Sha256::digest(identity)[..16]);
    key
}
