//! The state that the controller keeps of a key between passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::freshness::Freshness;
use crate::call::Scope;
use crate::contract::{Cause, Event, ObjectRef, Origin, RetryRequest};
use crate::key::{Key, ObjectKey, PassId};
use crate::merge::Part;
use crate::object::Object;
use crate::reconcile::{AnswerDelta, EntryHistory, LastPass, PhaseWait, primary_scope};
use crate::retry::Delay;
use crate::shared::capacity::Capacity;
use crate::time::Boot;
use crate::worker::LastWrite;

use super::Controller;
use super::rate_limit::Bucket;

/// The state that the controller keeps of a key between passes.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) tenant: Arc<str>,
    /// The fair-queueing group of this key: its binding and tenant.
    pub(super) tenant_queue: Arc<str>,
    pub(super) running: Option<PassId>,
    pub(super) causes: Vec<Cause>,
    /// When the key was queued for its next pass, if it is queued.
    pub(super) queued: Option<Boot>,
    pub(super) wakes_on: WakeOn,
    /// The primary as the last pass read or wrote it. A watch event that shows the same object does not requeue the
    /// key.
    pub(super) seen: Option<Object>,
    pub(super) last: LastPass,
    /// How each answer in `last.used` has changed since the last pass, in the same order.
    pub(super) deltas: Box<[AnswerDelta]>,
    /// The scopes with a change that was not compared with these answers, because they are too many. Each of them may be
    /// another one now.
    pub(super) dirty: BTreeSet<Scope>,
    /// The object that last changed one of these answers, if it was a single object.
    pub(super) changed_by: Option<ObjectRef>,
    pub(super) attempt: u32,
    pub(super) faults: u32,
    pub(super) bucket: Bucket,
    pub(super) slowed: bool,
    /// What this host knows about each entry in `status.pending`, by the entry's key.
    pub(super) histories: BTreeMap<String, EntryHistory>,
    /// What was written last of each part.
    pub(super) written: BTreeMap<Part, LastWrite>,
    /// The request to the retry policy, and when the wait began. It is kept so that a new retry policy can be asked
    /// again.
    pub(super) retry: Option<(Boot, Box<RetryRequest>)>,
    pub(super) events: Vec<Event>,
    /// Whether the cache is known to be behind for this primary.
    pub(super) freshness: Freshness,
    /// The locks that were busy when the last pass asked for them. The key waits in the queue of each.
    pub(super) busy: Vec<String>,
}

/// Which changes end a key's wait before its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WakeOn {
    /// Any change of an answer that the last pass used.
    #[default]
    AnyChange,
    /// Only a change of the primary's generation, of its deletion, or of its requests. Other changes do not shorten a
    /// backoff.
    News,
}

impl WakeOn {
    /// Which changes end the wait for a retry.
    pub(super) fn during(delay: Delay) -> Self {
        match delay {
            Delay::After(_) => WakeOn::News,
            Delay::OnChange(_) => WakeOn::AnyChange,
        }
    }
}

/// The reason why a key waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// An unsynced watch: its scope, and its last error if there is one.
    Watch(Scope, Option<String>),
    /// The lease: this host does not hold it.
    Lease,
    /// The renewal of the lease: the present one ends before the next write would.
    Renewal,
    /// Its turn at what all passes share.
    Capacity(Capacity),
    /// The reply of a policy, a cloud or the API server to its pass.
    Call,
    /// A read of its primary: the cache is older than a write of its last pass.
    Refresh,
    /// A lock that was busy when its last pass asked for it, and the time of the next try if one is set.
    Lock(String, Option<Boot>),
    /// A timer, due at this time.
    Time(Boot),
    /// Its turn in its tenant queue.
    Turn,
    /// A change of an object. No timer is set.
    Change,
}

impl std::fmt::Display for WaitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WaitReason::Watch(scope, None) => write!(f, "the watch of {scope}, which has not listed"),
            WaitReason::Watch(scope, Some(why)) => write!(f, "the watch of {scope}, which fails: {why}"),
            WaitReason::Lease => f.write_str("the lease, which this host does not hold"),
            WaitReason::Renewal => f.write_str("the renewal of the lease"),
            WaitReason::Capacity(capacity) => capacity.fmt(f),
            WaitReason::Call => f.write_str("an answer: its pass is in flight"),
            WaitReason::Refresh => f.write_str("a read of its object, because the watch is behind"),
            WaitReason::Lock(name, _) => write!(f, "the lock {name}, which another object holds"),
            WaitReason::Time(_) => f.write_str("the time of its next try"),
            WaitReason::Turn => f.write_str("its turn in the queue of its tenant"),
            WaitReason::Change => f.write_str("a change"),
        }
    }
}

/// The state of a key, as the host shows it to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// A pass of the key is in flight.
    pub running: bool,
    /// The key is queued.
    pub queued: bool,
    /// When the timer of the key is due.
    pub due: Option<Boot>,
    /// The number of consecutive passes that ended in a failure.
    pub attempt: u32,
    /// The number of consecutive faults.
    pub faults: u32,
    /// The reason why the key waits.
    pub waiting: WaitReason,
}

impl KeyState {
    /// Adds a cause of the next pass. One changed object and one lock are kept, so that the list of causes stays
    /// short.
    pub(super) fn note(&mut self, cause: Cause) {
        let is_known = match &cause {
            Cause::Dependency(_) => self.has_dependency_cause(),
            Cause::Lock(_) => self.causes.iter().any(|c| matches!(c, Cause::Lock(_))),
            _ => false,
        };
        if !is_known && let Err(at) = self.causes.binary_search(&cause) {
            self.causes.insert(at, cause);
        }
    }

    /// Whether a change of an answer is among the causes of the next pass.
    pub(super) fn has_dependency_cause(&self) -> bool {
        self.causes
            .iter()
            .any(|cause| matches!(cause, Cause::Dependency(_)))
    }

    /// The state of a key without a finished pass. `running` is a pass that was in flight when the key was forgotten
    /// earlier.
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
            bucket,
            ..KeyState::default()
        }
    }
}

impl KeyState {
    /// Why the last pass failed, if it failed.
    pub(super) fn retries(&self) -> Option<String> {
        if self.faults > 0 {
            return Some("quarantined: a policy broke its contract".into());
        }
        let request = self.retry.as_ref().map(|(_, request)| request);
        let failure = request.and_then(|request| Some((request.origin, request.failure.as_ref()?)));
        match failure {
            Some((origin, failure)) => {
                let at = failure
                    .operation
                    .as_deref()
                    .map_or_else(String::new, |it| format!(" at {it}"));
                let of = match origin {
                    Origin::Identity => "identity",
                    Origin::Lifecycle => "lifecycle",
                    Origin::Conflict | Origin::Publication => "publication",
                };
                Some(format!("{of}{at}: {failure}"))
            }
            None => (self.attempt > 0).then(|| "its last pass failed".into()),
        }
    }
}

impl Controller {
    /// All keys, each with its present state.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, KeyView)> {
        let unsynced: BTreeSet<&str> = self.unsynced().collect();
        self.keys.states.iter().map(move |(key, state)| {
            let view = KeyView {
                running: state.running.is_some(),
                queued: self.keys.queue.is_queued(key),
                due: self.keys.queue.deadline(key),
                attempt: state.attempt,
                faults: state.faults,
                waiting: self.waits_for(key, state, &unsynced),
            };
            (key, view)
        })
    }

    /// Finds the first reason why a key waits. `unsynced` holds the bindings whose primaries are not listed yet.
    fn waits_for(&self, key: &Key, state: &KeyState, unsynced: &BTreeSet<&str>) -> WaitReason {
        // A pass may wait for several things at once. A watch or a turn says more than that some answer is missing.
        if let Some((phase, running)) = state.running.and_then(|pass| self.passes.in_flight.get(&pass)) {
            let (calls, pass) = (&self.shared.calls, running.frame.id);
            return match (phase.awaited(), calls.awaits_place(pass)) {
                (PhaseWait::Watch(scope), _) => self.watch(scope),
                (_, Some(capacity)) => WaitReason::Capacity(capacity.clone()),
                _ if calls.awaits_renewal(pass) => WaitReason::Renewal,
                (PhaseWait::Call, None) => WaitReason::Call,
            };
        }
        if unsynced.contains(&*key.binding)
            && let Some(binding) = self.shared.bindings.get(&key.binding)
        {
            let scope = primary_scope(binding, &ObjectKey::from(key));
            if !self.shared.cache.is_synced(&scope) {
                return self.watch(&scope);
            }
        }
        match (self.keys.queue.deadline(key), state.busy.last()) {
            // Without the lease no timer is served and no pass starts, whatever else the key waits for.
            _ if !self.is_holder() => WaitReason::Lease,
            _ if state.freshness.is_reading() => WaitReason::Refresh,
            _ if self.keys.queue.is_queued(key) => WaitReason::Turn,
            (at, Some(lock)) => WaitReason::Lock(lock.clone(), at),
            (Some(at), None) => WaitReason::Time(at),
            (None, _) => WaitReason::Change,
        }
    }

    pub(super) fn watch(&self, scope: &Scope) -> WaitReason {
        let why = self.shared.cache.watch_error(scope).map(str::to_owned);
        WaitReason::Watch(scope.clone(), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Kind, ObjectRef};

    #[test]
    fn of_several_changed_objects_and_locks_one_each_is_a_cause_and_in_order() {
        let mut state = KeyState::new("t".into(), "t".into(), None, Bucket::full(1, Boot(0)));
        let object = |name: &str| {
            let kind = Kind {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
            };
            Cause::Dependency(Some(ObjectRef {
                cluster: None,
                kind,
                namespace: None,
                name: name.into(),
            }))
        };
        let lock = |name: &str| Cause::Lock(name.into());
        for cause in [
            lock("b"),
            object("b"),
            Cause::Due,
            object("a"),
            lock("a"),
            Cause::Due,
        ] {
            state.note(cause);
        }
        let mut expected = vec![lock("b"), object("b"), Cause::Due];
        expected.sort();
        assert_eq!(state.causes, expected);
    }
}
