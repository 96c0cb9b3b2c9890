//! Things that happen by themselves at their time, and events that are announced at once.

use polity_core::call::{CloudRequest, Session};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Kernel;

/// A scheduled thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Due<E> {
    /// A task ends.
    End(u64),
    /// A task's record expires.
    Expire(u64),
    /// A call with a late effect arrives.
    Arrive(Box<DelayedCall>),
    /// A cue is due.
    Cue(usize),
    /// An event that a service scheduled.
    Event(E),
}

/// A call that is still on its way after its caller has given up. It is stored with digests in place of
/// secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DelayedCall {
    pub(crate) session: Session,
    pub(crate) operation: String,
    pub(crate) arguments: Value,
    pub(crate) key: Option<String>,
}

impl From<DelayedCall> for CloudRequest {
    fn from(delayed: DelayedCall) -> Self {
        let DelayedCall {
            session,
            operation,
            arguments,
            key,
        } = delayed;
        CloudRequest {
            session,
            operation,
            arguments,
            key,
        }
    }
}

impl<E, Q> Kernel<E, Q> {
    /// Schedules an event for all services.
    pub(crate) fn schedule(&mut self, at: u64, event: E) {
        self.enter(at, Due::Event(event));
    }

    /// Announces an event to all services. They get it before anything else happens.
    pub(crate) fn announce(&mut self, event: E) {
        self.announced.push_back(event);
    }

    /// The next event to pass to all services.
    pub(crate) fn next_announced(&mut self) -> Option<E> {
        self.announced.pop_front()
    }

    pub(super) fn enter(&mut self, at: u64, what: Due<E>) {
        let nth = self.number();
        self.due.insert((at, nth), what);
    }

    /// The time of the next scheduled thing.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// The first scheduled thing that is due by `now`, with its time.
    pub(crate) fn take_due(&mut self) -> Option<(u64, Due<E>)>
    where
        E: Clone,
    {
        let now = self.head.now;
        let ((at, _), due) = self.due.pop_first_if(|(at, _)| *at <= now)?;
        Some((at, due))
    }

    /// Whether a call with a late effect is still on its way.
    pub(super) fn expects_late_effects(&self) -> bool {
        self.due.values().any(|due| matches!(due, Due::Arrive(_)))
    }
}
