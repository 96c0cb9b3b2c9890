//! What is remembered of a key between passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::refresh::Freshness;
use super::rooms::Room;
use crate::call::Scope;
use crate::contract::{Cause, Event, ObjectRef, RetryRequest};
use crate::key::{Key, ObjectKey, PassId};
use crate::merge::Part;
use crate::object::Object;
use crate::projection::Digest;
use crate::reconcile::{Awaited, Known, LastPass, Moved, primary_scope};
use crate::retry::Delay;
use crate::time::Boot;

use super::Controller;
use super::rate_limit::Bucket;

/// What is remembered of a key between passes.
#[derive(Debug)]
pub(super) struct KeyState {
    pub(super) tenant: Arc<str>,
    /// The fair-queueing group of this key: its binding and tenant.
    pub(super) tenant_queue: Arc<str>,
    pub(super) running: Option<PassId>,
    pub(super) causes: BTreeSet<Cause>,
    pub(super) waiting: Waiting,
    /// The primary as the last pass saw or wrote it.
    pub(super) seen: Option<Object>,
    pub(super) last: LastPass,
    /// How the answers that the last pass used have changed since, in their order.
    pub(super) moved: Box<[Moved]>,
    /// The object that moved one of them last, where it was one object.
    pub(super) moved_by: Option<ObjectRef>,
    pub(super) attempt: u32,
    pub(super) faults: u32,
    pub(super) bucket: Bucket,
    pub(super) slowed: bool,
    /// What this host knows of each pending entry, by its key.
    pub(super) known: BTreeMap<String, Known>,
    /// Of each part of the last publication what the API server did not keep.
    pub(super) futile: BTreeMap<Part, Digest>,
    /// What the retry policy was asked, or would have been, and when.
    pub(super) retry: Option<(Boot, Box<RetryRequest>)>,
    pub(super) events: Vec<Event>,
    /// Whether what the cache shows of it can be trusted.
    pub(super) freshness: Freshness,
    /// The locks that were busy when the last pass asked for them: it stands in tenant queue for each.
    pub(super) busy: Vec<String>,
}

/// What ends a key's wait before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Any change of what its last pass saw.
    ForAnyChange,
    /// A change of the primary's generation, deletion, or requests.
    ForSomethingNew,
}

impl Waiting {
    /// While a key waits to retry.
    pub(super) fn during(delay: Delay) -> Self {
        match delay {
            Delay::After(_) => Waiting::ForSomethingNew,
            Delay::OnChange(_) => Waiting::ForAnyChange,
        }
    }
}

/// What a key waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A watch that has not listed, or failed since: which, and why, where it said so.
    Watch(Scope, Option<String>),
    /// The lease, which this host does not hold.
    Lease,
    /// The lease, which ends before what its pass is about to change would.
    Renewal,
    /// A place in a room that it shares with others.
    Room(Room),
    /// Passes of its tenant, whose answers take much memory.
    Memory,
    /// A call of its pass: a policy, a cloud, the API server.
    Call,
    /// A read of its object: what is known of it is older than what its last pass met.
    Refresh,
    /// A lock that was busy when its last pass asked, and the time of its next try, where it has one.
    Lock(String, Option<Boot>),
    /// A time.
    Time(Boot),
    /// Passes of other keys, which come first.
    Turn,
    /// A change, and nothing else.
    Change,
}

impl std::fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WaitsFor::Watch(scope, None) => write!(f, "the watch of {scope}, which has not listed"),
            WaitsFor::Watch(scope, Some(why)) => write!(f, "the watch of {scope}, which fails: {why}"),
            WaitsFor::Lease => f.write_str("the lease, which this host does not hold"),
            WaitsFor::Renewal => f.write_str("the renewal of the lease"),
            WaitsFor::Room(room) => room.fmt(f),
            WaitsFor::Memory => f.write_str("passes of its tenant, whose answers take much memory"),
            WaitsFor::Call => f.write_str("an answer: its pass is under way"),
            WaitsFor::Refresh => f.write_str("a read of its object, which the watch shows too late"),
            WaitsFor::Lock(name, _) => write!(f, "the lock {name}, which another object holds"),
            WaitsFor::Time(_) => f.write_str("the time of its next try"),
            WaitsFor::Turn => f.write_str("its turn"),
            WaitsFor::Change => f.write_str("a change"),
        }
    }
}

/// A key as the host shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// A pass of it is in flight.
    pub running: bool,
    /// It waits for its turn.
    pub queued: bool,
    /// When its timer is due.
    pub due: Option<Boot>,
    /// Passes in a row that ended in a failure.
    pub attempt: u32,
    /// Faults in a row.
    pub faults: u32,
    /// What it waits for.
    pub waiting: WaitsFor,
}

impl KeyState {
    /// Notes why the next pass runs. Of several objects, and several locks, one is enough.
    pub(super) fn note(&mut self, cause: Cause) {
        let is_known = match &cause {
            Cause::Dependency(_) => self.causes.iter().any(|c| matches!(c, Cause::Dependency(_))),
            Cause::Lock(_) => self.causes.iter().any(|c| matches!(c, Cause::Lock(_))),
            _ => false,
        };
        if !is_known {
            self.causes.insert(cause);
        }
    }

    /// A key that no pass has seen; `running` is a pass of its that was under way when it was forgotten.
    pub(super) fn new(
        tenant: Arc<str>,
        tenant_queue: Arc<str>,
        running: Option<PassId>,
        bucket: Bucket,
    ) -> Self {
        KeyState {
            tenant,
            tenant_queue,
            running,
            causes: BTreeSet::new(),
            waiting: Waiting::ForAnyChange,
            seen: None,
            last: LastPass::default(),
            moved: Box::default(),
            moved_by: None,
            attempt: 0,
            faults: 0,
            bucket,
            slowed: false,
            known: BTreeMap::new(),
            futile: BTreeMap::new(),
            retry: None,
            events: Vec::new(),
            freshness: Freshness::default(),
            busy: Vec::new(),
        }
    }
}

impl Controller {
    /// The keys of a binding: whether each has a pass in flight or a turn coming, and when its timer is due.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, KeyView)> {
        let unsynced: BTreeSet<&str> = self.unsynced().collect();
        let waiting = self.rooms.waiting();
        self.keys.iter().map(move |(key, state)| {
            let view = KeyView {
                running: state.running.is_some(),
                queued: self.queue.is_queued(key),
                due: self.queue.deadline(key),
                attempt: state.attempt,
                faults: state.faults,
                waiting: self.waits_for(key, state, &unsynced, &waiting),
            };
            (key, view)
        })
    }

    /// `unsynced` are the bindings whose own objects are not all known, `waiting` the passes that wait for room.
    fn waits_for(
        &self,
        key: &Key,
        state: &KeyState,
        unsynced: &BTreeSet<&str>,
        waiting: &BTreeMap<PassId, &Room>,
    ) -> WaitsFor {
        if let Some((phase, running)) = state.running.and_then(|pass| self.passes.get(&pass)) {
            return match (phase.awaited(), waiting.get(&running.frame.id)) {
                (Awaited::Watch(scope), _) => self.watch(scope),
                (_, Some(room)) => WaitsFor::Room((*room).clone()),
                (Awaited::Gate, None) => WaitsFor::Renewal,
                _ if self
                    .journals
                    .is_waiting(&running.frame.tenant_queue, running.frame.id) =>
                {
                    WaitsFor::Memory
                }
                (Awaited::Call, None) => WaitsFor::Call,
            };
        }
        if unsynced.contains(&*key.binding)
            && let Some(binding) = self.bindings.get(&key.binding)
        {
            let scope = primary_scope(binding, &ObjectKey::from(key));
            if !self.cache.is_synced(&scope) {
                return self.watch(&scope);
            }
        }
        match (self.queue.deadline(key), state.busy.last()) {
            _ if !self.is_holder() => WaitsFor::Lease,
            _ if state.freshness.is_reading() => WaitsFor::Refresh,
            _ if self.queue.is_queued(key) => WaitsFor::Turn,
            (at, Some(lock)) => WaitsFor::Lock(lock.clone(), at),
            (Some(at), None) => WaitsFor::Time(at),
            (None, _) => WaitsFor::Change,
        }
    }

    pub(super) fn watch(&self, scope: &Scope) -> WaitsFor {
        let why = self.cache.watch_error(scope).map(str::to_owned);
        WaitsFor::Watch(scope.clone(), why)
    }
}
