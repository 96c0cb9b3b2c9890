//! What happens by itself at its time, and what is announced at once.

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::envelope::Late;

/// Something that happens by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Due<E> {
    /// A task ends.
    End(u64),
    /// A task's record expires.
    Expire(u64),
    /// A call whose effect was late.
    Arrive(Late),
    /// It is time for a cue.
    Cue(usize),
    /// What a service wanted to be told.
    Event(E),
}

impl<E, Q> Kernel<E, Q> {
    /// Carries the event to all services, at its time.
    pub(crate) fn schedule(&mut self, at: u64, event: E) {
        self.enter(at, Due::Event(event));
    }

    /// Carries the event to all services, before anything else happens.
    pub(crate) fn announce(&mut self, event: E) {
        self.announced.push_back(event);
    }

    /// The next event to be carried to all services.
    pub(crate) fn next_announced(&mut self) -> Option<E> {
        self.announced.pop_front()
    }

    pub(super) fn enter(&mut self, at: u64, what: Due<E>) {
        let nth = self.number();
        self.due.insert((at, nth), what);
    }

    /// When something happens by itself next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// What is due by now, the earliest first, and when it was due.
    pub(crate) fn take_due(&mut self) -> Option<(u64, Due<E>)>
    where
        E: Clone,
    {
        let now = self.head.now;
        let ((at, _), due) = self.due.pop_first_if(|(at, _)| *at <= now)?;
        Some((at, due))
    }

    /// A call is still on its way.
    pub(super) fn expects_late_effects(&self) -> bool {
        self.due.values().any(|due| matches!(due, Due::Arrive(_)))
    }
}
