//! Who gets the reply of a call, and the terms on which it may begin.

use crate::binding::PolicyId;
use crate::call::Scope;
use crate::contract::{ObjectRef, RetryRequest};
use crate::key::{Key, ObjectKey, PassId};
use crate::object::{Object, ResourceVersion};
use crate::time::Boot;

use super::cache::Cache;

/// The receiver of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Receiver {
    /// A pass, and the slot of its phase that the reply fills.
    Pass(PassId, usize),
    /// A waiting key that asks the changed retry policy of its binding for a new wait.
    Reschedule(Box<RescheduleQuestion>),
    /// A key whose primary is read before its next pass.
    Refresh(Box<Refresh>),
    Lease {
        wrote: bool,
    },
}

/// A question to a retry policy about a key that waits already.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RescheduleQuestion {
    pub(crate) key: Key,
    /// When the wait began.
    pub(crate) since: Boot,
    pub(crate) policy: PolicyId,
    pub(crate) request: RetryRequest,
}

/// A read of a primary whose cached version is stale.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refresh {
    pub(crate) key: Key,
    pub(crate) object: ObjectRef,
    pub(crate) uid: String,
    pub(crate) stale: ResourceVersion,
}

/// The terms on which a call may be sent that changes something. Whoever admits it looks at them, and whoever
/// writes its request looks at the time right before the first byte.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terms {
    /// It must begin before this.
    pub(crate) begin_by: Boot,
    /// For the first act of a pass: how its primary stands.
    pub(crate) first: Option<PrimaryCheck>,
}

impl Terms {
    /// A change that may begin at any time, because a version is its precondition.
    pub(crate) const ANY_TIME: Terms = Terms {
        begin_by: Boot::MAX,
        first: None,
    };
}

/// The primary of a pass as it read it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrimaryCheck {
    /// The scope in which the binding watches it.
    pub(crate) scope: Scope,
    pub(crate) place: ObjectKey,
    /// `None` if it was absent.
    pub(crate) snapshot: Option<Object>,
}

impl PrimaryCheck {
    /// Whether uid, spec and deletion of the primary in the cache are still those that the pass read.
    pub(crate) fn is_so(&self, cache: &Cache) -> bool {
        // The object counts as gone only if its own watch shows that. Any watch may be the first to show that it
        // changed.
        let now = cache.last_known(&self.scope, &self.place);
        let now = now.and_then(|_| cache.newest(&self.scope.kind, &self.place));
        match (&self.snapshot, now) {
            (Some(then), Some(now)) => {
                then.uid() == now.uid() && then.has_spec_of(now) && then.is_deleting() == now.is_deleting()
            }
            (None, None) => true,
            _ => false,
        }
    }
}

/// Why a change was not sent. It had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// This host does not hold the lease any more.
    LeaseLost,
    /// The host stops, and begins nothing more.
    Cut,
    /// The primary has changed since the pass read it.
    PrimaryChanged,
    /// The time is over at which it had to begin.
    Late,
}
