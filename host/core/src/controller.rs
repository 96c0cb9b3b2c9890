//! The controller: inputs in, outputs out.
//!
//! ```text
//! watch event ─► triggers ─► queue ─► passes ⇄ reconcile ─► finish ─► queue
//!                 cache                 calls    (phases)   reschedule
//! ```
//!
//! It holds keys, calls, watches and the lease; what one pass does next is decided in `reconcile`. A pass is
//! taken out of the map while an event of it is handled: what the handler commands is performed when it has returned.

pub(crate) mod cache;
mod calls;
mod dependents;
mod finish;
mod guards;
pub(crate) mod journals;
mod keys;
pub mod lease;
pub(crate) mod locks;
mod passes;
mod queue;
mod rate_limit;
mod refresh;
mod reschedule;
pub(crate) mod rooms;
#[cfg(test)]
mod tests;
mod triggers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::binding::{Binding, PolicyId};
use crate::call::{Call, CallId, Reply, Scope, WatchEvent};
use crate::contract::Cause;
use crate::fault::Fault;
use crate::key::{Key, PassId};
use crate::reconcile::{Phase, primary_scopes};
use crate::record::{Outcome, PassRecord};
use crate::time::{Boot, Now};

use cache::Cache;
use calls::{Outstanding, Target};
use dependents::Dependents;
pub use guards::{Guard, Guards};
use journals::Journals;
use keys::KeyState;
pub use keys::{KeyView, WaitsFor};
use lease::{Lease, LeaseAction, LeaseProblem};
use locks::Locks;
use passes::Running;
use queue::Queue;
use rooms::Rooms;
pub use rooms::{Room, RoomSizes};

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Nothing but time passed.
    Tick,
    /// A binding is there, or is there in a new form.
    Bound(Box<Binding>),
    /// A binding is gone.
    Unbound(String),
    /// A watch said something.
    Watched {
        /// What the watch covers.
        scope: Scope,
        /// What it says.
        event: WatchEvent,
    },
    /// A call ended.
    Returned {
        /// The call that is answered.
        call: CallId,
        /// Its reply.
        reply: Reply,
    },
    /// Finish what is in flight, give the lease up, and stop.
    Stop,
    /// Begin nothing more, end every pass as soon as nothing that it sent can still change anything, give the lease up,
    /// and stop.
    Cut,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub enum Output {
    /// Do this; its reply comes back as [`Input::Returned`].
    Call {
        /// Names it.
        id: CallId,
        /// What is to be done.
        call: Call,
        /// Whether it is expected to hold a thread for more than a millisecond. So many of these are under way at once
        /// that one thread is free of them.
        is_long: bool,
    },
    /// A call took too long, or nobody waits for it any more.
    Cancel(CallId),
    /// Watch this.
    Watch(Scope),
    /// Nobody depends on this any more.
    Unwatch(Scope),
    /// A pass ended.
    Recorded(Box<PassRecord>),
    /// An object is gone, or is governed no more, and its last pass has ended: nothing about it need be remembered.
    Forgotten(Key),
    /// Nothing is in flight and the lease is given up.
    Stopped,
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

/// How a binding does: what its status says beside whether it is loaded.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Passes that ended.
    pub passes: u64,
    /// Passes that were given up before any effect.
    pub discarded: u64,
    /// Acts performed.
    pub acts: u64,
    /// Faults.
    pub faults: u64,
    /// The last fault since the binding changed, and on which object.
    pub last_fault: Option<(Key, Fault)>,
    /// What a retry policy said that was not taken as it was, since the binding changed, and on which object.
    pub clamped: Option<(Key, String)>,
    /// What its policies requested and it does not grant.
    pub ungranted: BTreeSet<String>,
    /// What the API server did not keep of what was written, and on which object: the field is not in the CRD, or has
    /// another default.
    pub not_kept: BTreeMap<String, Key>,
    /// An older binding that governs objects of this one.
    pub overlapped_by: Option<String>,
    /// The watches that it needs and that show nothing now, with what they said of it.
    pub unsynced: BTreeSet<String>,
}

/// The deterministic heart: everything that can happen goes in, everything that must be done comes out.
pub struct Controller {
    now: Now,
    out: Vec<Output>,
    last_call: u64,
    last_pass: u64,
    lease: Lease,
    was_held: bool,
    bindings: BTreeMap<Arc<str>, Arc<Binding>>,
    health: BTreeMap<Arc<str>, Health>,
    cache: Cache,
    /// Each in a box: the nodes of a map that keys enter in their order stay half empty.
    keys: BTreeMap<Key, Box<KeyState>>,
    /// Keys that were forgotten while a pass of theirs was under way: should they come back, they wait for its end.
    orphans: BTreeMap<Key, PassId>,
    /// Which keys depend on what a scope shows.
    dependents: BTreeMap<Scope, Dependents>,
    queue: Queue,
    passes: BTreeMap<PassId, (Phase, Box<Running>)>,
    /// The passes under way, by fair-queueing group, and what their journals hold.
    journals: Journals,
    calls: BTreeMap<CallId, Outstanding>,
    call_deadlines: BTreeSet<(Boot, CallId)>,
    /// Passes whose next change waits for the lease to be renewed.
    parked: Vec<PassId>,
    rooms: Rooms,
    /// Passes whose next change has a place in its room from now on.
    opened: VecDeque<PassId>,
    /// Questions that wait until a watch has listed.
    unsynced: BTreeMap<Scope, Vec<CallId>>,
    locks: Locks,
    /// What digests of answers are made with: nobody outside can make two that are alike.
    digest_key: [u8; 16],
    next_sweep: Boot,
    guards: Guards,
    stopping: bool,
    /// No pass has time to finish.
    cutting: bool,
}

impl Controller {
    /// A controller that competes for the lease as `identity`, which must differ between processes.
    pub fn new(identity: impl Into<String>) -> Self {
        let identity = identity.into();
        let digest_key = digest_key(&identity);
        Controller {
            now: Now::default(),
            out: Vec::new(),
            last_call: 0,
            last_pass: 0,
            lease: Lease::new(identity),
            was_held: false,
            bindings: BTreeMap::new(),
            health: BTreeMap::new(),
            cache: Cache::default(),
            keys: BTreeMap::new(),
            orphans: BTreeMap::new(),
            dependents: BTreeMap::new(),
            queue: Queue::default(),
            passes: BTreeMap::new(),
            journals: Journals::default(),
            calls: BTreeMap::new(),
            call_deadlines: BTreeSet::new(),
            parked: Vec::new(),
            rooms: Rooms::new(RoomSizes::default()),
            opened: VecDeque::new(),
            unsynced: BTreeMap::new(),
            locks: Locks::default(),
            digest_key,
            next_sweep: Boot::default(),
            guards: Guards::default(),
            stopping: false,
            cutting: false,
        }
    }

    /// The same controller with rooms of other sizes.
    pub fn with_rooms(mut self, sizes: RoomSizes) -> Self {
        self.rooms = Rooms::new(sizes);
        self
    }

    /// Takes a guard away.
    #[cfg(feature = "simulation")]
    pub fn set_guards(&mut self, guards: Guards) {
        self.guards = guards;
        self.rooms.set_guards(guards);
    }

    /// Everything that can happen goes in, everything that must be done comes out, in order.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Output> {
        self.now = now;
        match input {
            Input::Tick => {}
            Input::Bound(binding) => self.bind(*binding),
            Input::Unbound(name) => self.unbind(&name),
            Input::Watched { scope, event } => self.watched(&scope, event),
            Input::Returned { call, reply } => self.returned(call, reply),
            Input::Stop => self.stopping = true,
            Input::Cut => (self.stopping, self.cutting) = (true, true),
        }
        self.advance();
        std::mem::take(&mut self.out)
    }

    /// When the controller wants [`Input::Tick`] if nothing happens before.
    pub fn deadline(&self) -> Boot {
        let calls = self.call_deadlines.first().map(|(at, _)| *at);
        [
            self.queue.next_timer().filter(|_| self.was_held),
            calls,
            Some(self.next_sweep),
            Some(self.lease.deadline()),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Boot::MAX)
    }

    /// Whether this host holds the lease.
    pub fn is_holder(&self) -> bool {
        self.lease.is_held(self.now)
    }

    /// What stands in the way of holding the lease.
    pub fn lease_problem(&self) -> Option<LeaseProblem> {
        self.lease.problem()
    }

    /// How a binding does.
    pub fn health(&self, binding: &str) -> Option<Health> {
        Some(Health {
            unsynced: self.unsynced_watches(binding),
            ..self.health.get(binding)?.clone()
        })
    }

    /// The watches that a binding needs and that show nothing: of its own objects, and of what its keys depend on.
    fn unsynced_watches(&self, binding: &str) -> BTreeSet<String> {
        let own = self.bindings.get(binding).map(|binding| primary_scopes(binding));
        let own = own.unwrap_or_default();
        let needs = |scope: &&Scope| {
            let dependents = self.dependents.get(*scope);
            own.contains(*scope) || dependents.is_some_and(|dependents| dependents.has_key_of(binding))
        };
        let unsynced = self.cache.scopes().filter(|scope| !self.cache.is_synced(scope));
        let watches = unsynced.filter(needs).map(|scope| self.watch(scope).to_string());
        watches.collect()
    }

    /// What the cache holds, and how its watches stand.
    pub fn cache_figures(&self) -> CacheFigures {
        let mut figures = CacheFigures::default();
        for scope in self.cache.scopes() {
            match self.cache.is_synced(scope) {
                true => figures.synced += 1,
                false => figures.failing += 1,
            }
            for object in self.cache.all(scope) {
                figures.objects += 1;
                figures.bytes += object.json().len();
            }
        }
        figures
    }

    /// The bindings, by name.
    pub fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    /// The policies that may still be called: those of the bindings, and those that a pass in flight began with.
    pub fn policies(&self) -> BTreeSet<&PolicyId> {
        let begun = self.passes.values().map(|(_, pass)| pass.binding());
        let bindings = self.bindings.values().chain(begun);
        bindings
            .flat_map(|binding| binding.policies.values().map(|policy| &policy.id))
            .collect()
    }

    /// Passes in flight.
    pub fn passes_in_flight(&self) -> usize {
        self.passes.len()
    }

    /// What follows from the time, whatever the input was.
    fn advance(&mut self) {
        self.expire_calls();
        self.poll_lease();
        if self.is_holder() {
            for key in self.queue.due(self.now.boot) {
                self.enqueue(&key, Cause::Due);
            }
        }
        if self.cutting {
            self.rooms.drop_events();
            self.interrupt_passes(&Outcome::Stopped, |phase| !phase.has_effect_in_flight());
        }
        self.start_passes();
        while let Some(pass) = self.opened.pop_front() {
            self.open(pass);
            self.start_passes();
        }
        self.sweep();
        if self.stopping && self.passes.is_empty() && !self.is_writing() {
            self.lease.give_up();
            self.poll_lease();
            if self.lease.is_given_up() {
                self.out.push(Output::Stopped);
            }
        }
    }

    /// Turns the lease's wishes into calls, and its loss or gain into what follows from it.
    fn poll_lease(&mut self) {
        if let LeaseAction::Call(write) = self.lease.poll(self.now) {
            let wrote = write.is_some();
            let call = Call::Lease(write);
            self.send(Target::Lease { wrote }, call, lease::CALL_LONGEST, None);
        }
        let held = self.is_holder();
        match (self.was_held, held) {
            (false, true) => {
                self.was_held = true;
                let keys: Vec<Key> = self.keys.keys().cloned().collect();
                for key in keys {
                    self.enqueue(&key, Cause::Resync);
                }
            }
            (true, false) => {
                self.was_held = false;
                if self.guards.stand(Guard::Fencing) {
                    self.interrupt_passes(&Outcome::LeaseLost, |_| true);
                }
            }
            _ => {}
        }
        if held {
            self.open_parked();
        }
    }

    /// Starts the passes of keys whose turn it is.
    fn start_passes(&mut self) {
        if !(self.is_holder() || (!self.guards.stand(Guard::Fencing) && self.was_held)) || self.stopping {
            return;
        }
        loop {
            let (journals, bindings) = (&self.journals, &self.bindings);
            let limit = |key: &Key| {
                let binding = bindings.get(&key.binding);
                binding.map_or(u32::MAX, |binding| binding.spec.limits.passes_per_tenant)
            };
            let of_all = !self.guards.stand(Guard::TenantsHaveRoomOfTheirOwn);
            let busy = |tenant_queue: &Arc<str>| match of_all {
                true => journals.all_passes(),
                false => journals.passes(tenant_queue),
            };
            let may_start = |tenant_queue: &Arc<str>, key: &Key| busy(tenant_queue) < limit(key);
            match self.queue.pop(may_start) {
                Some(key) => self.start(&key),
                None => return,
            }
        }
    }
}

fn digest_key(identity: &str) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&Sha256::digest(identity)[..16]);
    key
}
