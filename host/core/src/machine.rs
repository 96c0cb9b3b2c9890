//! The machine: inputs in, outputs out.
//!
//! ```text
//! watch event → queue → snapshot → step ↔ answers → conclusion → publication → requeue
//!   wake.rs                pass.rs   ask.rs, act.rs               publish.rs     end.rs
//! ```
//!
//! A pass is owned by the function that works on it: each either hands it on, puts it back to wait for a reply
//! (`Machine::suspend`), or ends it.

mod act;
mod ask;
mod call;
mod end;
mod pass;
mod pending;
mod publish;
mod wake;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::binding::{Binding, PolicyId};
use crate::cache::Cache;
use crate::call::{Call, CallId, Reply, Scope, WatchEvent};
use crate::contract::{Cause, Code, Event, Question, Role, Trial};
use crate::fault::Fault;
use crate::key::{Key, Now, PassId};
use crate::lease::{Lease, LeaseAction, LeaseTrouble};
use crate::limits::Bucket;
use crate::object::Object;
use crate::path::Digest;
use crate::permit::Permits;
use crate::plan::Part;
use crate::queue::Queue;
use crate::record::{Outcome, PassRecord};

use call::{Delayed, Outstanding, Target};
use pass::PassState;

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
        /// Which.
        scope: Scope,
        /// What.
        event: WatchEvent,
    },
    /// A call ended.
    Returned {
        /// Which.
        call: CallId,
        /// How.
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
pub enum Output {
    /// Do this; its reply comes back as [`Input::Returned`].
    Call {
        /// Names it.
        id: CallId,
        /// What.
        call: Call,
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

/// Guards that the simulation takes away one by one, to see that it notices, and the one shortcut that a benchmark
/// takes away to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
#[allow(missing_docs, reason = "each is named after what it guards")]
pub struct Guards {
    pub write_ahead: bool,
    pub precondition: bool,
    pub own_writes_wake_nothing: bool,
    pub look_before_the_first_act: bool,
    pub rebase_only_what_nobody_changed: bool,
    pub not_found_needs_a_synced_watch: bool,
    pub fencing: bool,
    pub permits_exclude: bool,
    pub acts_have_preconditions: bool,
    pub a_denial_ends_the_pass: bool,
    pub one_pass_at_a_time: bool,
    pub earlier_deadlines_stand: bool,
    pub tenants_have_room_of_their_own: bool,
    pub changes_wake_dependents: bool,
    pub only_who_used_it_wakes: bool,
    pub own_writes_enter_the_cache: bool,
    pub nothing_in_doubt_is_done_again: bool,
    pub doubt_keeps_the_finalizer: bool,
    pub entries_of_others_are_asked_for: bool,
    pub absent_takes_time: bool,
    pub acts_as_granted: bool,
    pub only_what_is_granted: bool,
    pub faults_back_off: bool,
    pub faults_delay_no_other: bool,
    pub passes_keep_their_binding: bool,
    pub recordings_are_whole: bool,
    pub retry_policies_decide: bool,
    pub swapped_retry_policies_are_asked: bool,
    pub unseen_changes_wake: bool,
    pub locks_last_until_published: bool,
    pub prefetch: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Guards {
            write_ahead: true,
            precondition: true,
            own_writes_wake_nothing: true,
            look_before_the_first_act: true,
            rebase_only_what_nobody_changed: true,
            not_found_needs_a_synced_watch: true,
            fencing: true,
            permits_exclude: true,
            acts_have_preconditions: true,
            a_denial_ends_the_pass: true,
            one_pass_at_a_time: true,
            earlier_deadlines_stand: true,
            tenants_have_room_of_their_own: true,
            changes_wake_dependents: true,
            only_who_used_it_wakes: true,
            own_writes_enter_the_cache: true,
            nothing_in_doubt_is_done_again: true,
            doubt_keeps_the_finalizer: true,
            entries_of_others_are_asked_for: true,
            absent_takes_time: true,
            acts_as_granted: true,
            only_what_is_granted: true,
            faults_back_off: true,
            faults_delay_no_other: true,
            passes_keep_their_binding: true,
            recordings_are_whole: true,
            retry_policies_decide: true,
            swapped_retry_policies_are_asked: true,
            unseen_changes_wake: true,
            locks_last_until_published: true,
            prefetch: true,
        }
    }
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
}

/// The deterministic heart: everything that can happen goes in, everything that must be done comes out.
pub struct Machine {
    now: Now,
    out: Vec<Output>,
    last_call: u64,
    last_pass: u64,
    lease: Lease,
    was_held: bool,
    bindings: BTreeMap<Arc<str>, Arc<Binding>>,
    health: BTreeMap<Arc<str>, Health>,
    cache: Cache,
    keys: BTreeMap<Key, KeyState>,
    /// Keys that were forgotten while a pass of theirs was under way: should they come back, they wait for its end.
    orphans: BTreeMap<Key, PassId>,
    /// Which keys depend on what a scope shows.
    dependents: BTreeMap<Scope, BTreeSet<Key>>,
    queue: Queue,
    passes: BTreeMap<PassId, Box<PassState>>,
    in_flight: BTreeMap<Arc<str>, u32>,
    calls: BTreeMap<CallId, Outstanding>,
    call_deadlines: BTreeSet<(u64, CallId)>,
    /// Passes whose next write or act waits for the lease to be renewed, or has room in its cloud from now on.
    parked: Vec<PassId>,
    /// What waits until its cloud has room, by binding.
    delayed: BTreeMap<Arc<str>, VecDeque<Delayed>>,
    cloud_calls: BTreeMap<Arc<str>, u32>,
    /// Questions that wait until a watch has listed.
    unsynced: BTreeMap<Scope, Vec<CallId>>,
    permits: Permits,
    next_sweep: u64,
    guards: Guards,
    stopping: bool,
    /// No pass has time to finish.
    cutting: bool,
}

/// What is remembered of a key between passes.
#[derive(Debug)]
struct KeyState {
    tenant: Arc<str>,
    /// Where it lines up: with the keys of its tenant under its binding.
    line: Arc<str>,
    running: Option<PassId>,
    causes: BTreeSet<Cause>,
    waiting: Waiting,
    /// The primary as the last pass saw or wrote it.
    seen: Option<Object>,
    /// What the last pass used. A slice, because there are few of them, and many keys that wait.
    deps: Box<[((Role, Question), Dependency)]>,
    attempt: u32,
    row_since: Option<u64>,
    faults: u32,
    bucket: Bucket,
    slowed: bool,
    /// What this host knows of each pending entry, by its key.
    known: BTreeMap<String, Known>,
    /// Of each part of the last publication what the API server did not keep: writing just that again is of no use.
    futile: BTreeMap<Part, Digest>,
    /// The outcome that the retry policy was asked about, and when.
    trial: Option<(u64, Box<Trial>)>,
    events: Vec<Event>,
}

/// What a process knows of a pending entry. It dies with the process: another one has to ask the cloud.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Boot milliseconds.
    since: u64,
    /// Whether it was this process that wrote it,
    written_here: bool,
    /// and whether it sent what the entry announces.
    sent: bool,
}

impl Known {
    /// An entry that was there already.
    fn seen(now: u64) -> Self {
        Known {
            since: now,
            written_here: false,
            sent: false,
        }
    }
}

/// What ends a key's wait before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// Any change of what its last pass saw.
    ForAnyChange,
    /// A change of the primary's generation, deletion, or requests.
    ForSomethingNew,
}

/// Something a pass looked at.
#[derive(Clone, Debug, PartialEq)]
struct Dependency {
    scope: Scope,
    digest: Digest,
}

impl Machine {
    /// A machine that competes for the lease as `identity`, which must differ between processes.
    pub fn new(identity: impl Into<String>) -> Self {
        Machine {
            now: Now::default(),
            out: Vec::new(),
            last_call: 0,
            last_pass: 0,
            lease: Lease::new(identity.into()),
            was_held: false,
            bindings: BTreeMap::new(),
            health: BTreeMap::new(),
            cache: Cache::default(),
            keys: BTreeMap::new(),
            orphans: BTreeMap::new(),
            dependents: BTreeMap::new(),
            queue: Queue::default(),
            passes: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            calls: BTreeMap::new(),
            call_deadlines: BTreeSet::new(),
            parked: Vec::new(),
            delayed: BTreeMap::new(),
            cloud_calls: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            permits: Permits::default(),
            next_sweep: 0,
            guards: Guards::default(),
            stopping: false,
            cutting: false,
        }
    }

    /// Takes some guards away, for tests of the simulation.
    #[doc(hidden)]
    pub fn set_guards(&mut self, guards: Guards) {
        self.guards = guards;
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

    /// Boot milliseconds at which the machine wants [`Input::Tick`] if nothing happens before.
    pub fn deadline(&self) -> u64 {
        let calls = self.call_deadlines.first().map(|(at, _)| *at);
        [
            self.queue.next_timer().filter(|_| self.was_held),
            calls,
            Some(self.next_sweep),
            self.lease_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
    }

    /// Whether this host holds the lease.
    pub fn is_holder(&self) -> bool {
        self.lease.is_held(self.now)
    }

    /// What stands in the way of holding the lease.
    pub fn lease_trouble(&self) -> Option<LeaseTrouble> {
        self.lease.trouble()
    }

    /// How a binding does.
    pub fn health(&self, binding: &str) -> Option<&Health> {
        self.health.get(binding)
    }

    /// The bindings, by name.
    pub fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    /// The policies that may still be called: those of the bindings, and those that a pass in flight began with.
    pub fn policies(&self) -> BTreeSet<&PolicyId> {
        let begun = self.passes.values().map(|pass| &pass.binding);
        let bindings = self.bindings.values().chain(begun);
        bindings
            .flat_map(|binding| binding.policies.values().map(|policy| &policy.id))
            .collect()
    }

    /// The keys of a binding: whether each has a pass in flight or a turn coming, and when its timer is due.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, KeyView)> {
        self.keys.iter().map(|(key, state)| {
            let view = KeyView {
                running: state.running.is_some(),
                queued: self.queue.is_queued(key),
                due: self.queue.deadline(key),
                attempt: state.attempt,
                faults: state.faults,
            };
            (key, view)
        })
    }

    /// Passes in flight.
    pub fn passes_in_flight(&self) -> usize {
        self.passes.len()
    }

    fn advance(&mut self) {
        self.expire_calls();
        self.poll_lease();
        if self.is_holder() {
            for key in self.queue.due(self.now.boot) {
                self.wake(&key, Cause::Due);
            }
        }
        if self.cutting {
            self.end_passes(&Outcome::Stopped, |machine, pass| {
                !machine.has_effect_in_flight(pass)
            });
        }
        self.start_passes();
        self.sweep();
        if self.stopping && self.passes.is_empty() && !self.is_writing() {
            self.lease.give_up();
            self.poll_lease();
            if self.lease.is_given_up() {
                self.out.push(Output::Stopped);
            }
        }
    }

    /// Ends these passes in the middle.
    fn end_passes(&mut self, outcome: &Outcome, which: impl Fn(&Self, PassId) -> bool) {
        let ids = self.passes.keys().copied();
        for id in ids.filter(|id| which(self, *id)).collect::<Vec<_>>() {
            if let Some(pass) = self.passes.remove(&id) {
                self.end(pass, outcome.clone());
            }
        }
    }

    fn lease_deadline(&self) -> Option<u64> {
        Some(self.lease.deadline())
    }

    /// Turns the lease's wishes into calls, and its loss or gain into what follows from it.
    fn poll_lease(&mut self) {
        if let LeaseAction::Call(write) = self.lease.poll(self.now) {
            let wrote = write.is_some();
            self.emit(
                Target::Lease { wrote },
                Call::Lease(write),
                crate::lease::CALL_LONGEST,
            );
        }
        let held = self.is_holder();
        match (self.was_held, held) {
            (false, true) => {
                self.was_held = true;
                let keys: Vec<Key> = self.keys.keys().cloned().collect();
                for key in keys {
                    self.wake(&key, Cause::Resync);
                }
            }
            (true, false) => {
                self.was_held = false;
                if self.guards.fencing {
                    self.end_passes(&Outcome::LeaseLost, |_, _| true);
                }
            }
            _ => {}
        }
        if held {
            for id in std::mem::take(&mut self.parked) {
                if let Some(pass) = self.passes.remove(&id) {
                    self.unpark(pass);
                }
            }
        }
    }

    fn start_passes(&mut self) {
        if !(self.is_holder() || (!self.guards.fencing && self.was_held)) || self.stopping {
            return;
        }
        loop {
            let (in_flight, bindings) = (&self.in_flight, &self.bindings);
            let limit = |key: &Key| {
                let binding = bindings.get(&key.binding);
                binding.map_or(u32::MAX, |binding| binding.spec.limits.passes_per_tenant)
            };
            let of_all = !self.guards.tenants_have_room_of_their_own;
            let busy = |line: &Arc<str>| match of_all {
                true => in_flight.values().sum(),
                false => in_flight.get(line).copied().unwrap_or(0),
            };
            let Some(key) = self.queue.pop(|line, key| busy(line) < limit(key)) else {
                return;
            };
            self.start(&key);
        }
    }

    /// Notes what the API server did not keep of an object.
    fn not_kept(&mut self, key: &Key, path: String) {
        let health = self.health.entry(key.binding.clone()).or_default();
        if health.not_kept.len() < 16 {
            health.not_kept.entry(path).or_insert_with(|| key.clone());
        }
    }

    /// Notes that a policy requested what it is not granted.
    fn ungranted(&mut self, binding: &Arc<str>, failure: &crate::contract::Failure) {
        if failure.code == Code::PermissionDenied && failure.message.starts_with("not granted") {
            let health = self.health.entry(binding.clone()).or_default();
            // A policy can word endlessly many requests; a few are enough to see what is missing.
            if health.ungranted.len() < 16 {
                health.ungranted.insert(failure.message.clone());
            }
        }
    }
}

/// A key as the host shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// A pass of it is in flight.
    pub running: bool,
    /// It waits for its turn.
    pub queued: bool,
    /// Boot milliseconds of its timer.
    pub due: Option<u64>,
    /// Passes in a row that ended in a failure.
    pub attempt: u32,
    /// Faults in a row.
    pub faults: u32,
}
