//! Calls in flight: which pass or key waits for each reply, and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::call::{CallId, Scope};
use crate::key::PassId;
use crate::time::Boot;

use super::rooms::{Reservation, Room, Ticket};
use super::waiter::{Target, Waiter};

/// The calls in flight. Each is found by what ends it: its reply, its deadline, its pass, or the list of a watch. So the
/// end of a call costs as much as that call, however many others there are.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    last: u64,
    pub(crate) outstanding: BTreeMap<CallId, Outstanding>,
    pub(crate) deadlines: BTreeSet<(Boot, CallId)>,
    of_passes: BTreeSet<(PassId, CallId)>,
    /// Questions that wait for the first list of a watch.
    pub(crate) unsynced: BTreeMap<Scope, BTreeSet<CallId>>,
    /// Changes that the lease does not cover before its renewal, in the order in which they had a place.
    uncovered: Vec<Uncovered>,
}

/// A change that waits for the renewal of the lease. It holds no place meanwhile.
#[derive(Debug)]
pub(crate) struct Uncovered {
    pub(crate) room: Room,
    pub(crate) tenant_queue: Arc<str>,
    pub(crate) ticket: Ticket,
    pub(crate) waiter: Waiter,
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) target: Target,
    pub(crate) deadline: Boot,
    /// The place in a room that the call holds until it ends.
    pub(crate) reservation: Option<Reservation>,
    /// Whether the call changes something outside.
    pub(crate) changes: bool,
    /// The scope whose list the question waits for, if no call was sent.
    pub(crate) awaits: Option<Scope>,
}

impl Calls {
    pub(crate) fn insert(&mut self, outstanding: Outstanding) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        self.deadlines.insert((outstanding.deadline, id));
        if let Target::Pass(pass, _) = outstanding.target {
            self.of_passes.insert((pass, id));
        }
        if let Some(scope) = &outstanding.awaits {
            self.unsynced.entry(scope.clone()).or_default().insert(id);
        }
        self.outstanding.insert(id, outstanding);
        id
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<Outstanding> {
        let outstanding = self.outstanding.remove(&id)?;
        self.deadlines.remove(&(outstanding.deadline, id));
        if let Target::Pass(pass, _) = outstanding.target {
            self.of_passes.remove(&(pass, id));
        }
        if let Some(scope) = &outstanding.awaits
            && let Some(waiting) = self.unsynced.get_mut(scope)
        {
            waiting.remove(&id);
            if waiting.is_empty() {
                self.unsynced.remove(scope);
            }
        }
        Some(outstanding)
    }

    /// The earliest time at which a call is cut.
    pub(crate) fn next_deadline(&self) -> Option<Boot> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Whether a question waits for the first list of a watch.
    pub(crate) fn await_list_of(&self, scope: &Scope) -> bool {
        self.unsynced.contains_key(scope)
    }

    pub(crate) fn of_pass(&self, pass: PassId) -> impl Iterator<Item = CallId> {
        let calls = self.of_passes.range((pass, CallId(0))..=(pass, CallId(u64::MAX)));
        calls.map(|(_, id)| *id)
    }

    /// Whether a pass has sent a change that is not answered. It may take effect, so the lease must be kept until it is
    /// answered or cut: the next holder relies on that.
    pub(crate) fn change_in_flight(&self, pass: PassId) -> bool {
        let mut calls = self.of_pass(pass).filter_map(|id| self.outstanding.get(&id));
        calls.any(|call| call.changes)
    }

    /// Makes a change wait for the renewal of the lease.
    pub(crate) fn await_renewal(&mut self, uncovered: Uncovered) {
        self.uncovered.push(uncovered);
    }

    /// Whether a pass waits for the renewal of the lease.
    pub(crate) fn awaits_renewal(&self, pass: PassId) -> bool {
        self.uncovered
            .iter()
            .any(|change| change.waiter.pass() == Some(pass))
    }

    /// Removes the changes that waited for the renewal of the lease.
    pub(crate) fn renewed(&mut self) -> Vec<Uncovered> {
        std::mem::take(&mut self.uncovered)
    }

    /// Removes a change of a pass that waits for the renewal of the lease.
    pub(crate) fn forget_uncovered(&mut self, pass: PassId) {
        self.uncovered.retain(|change| change.waiter.pass() != Some(pass));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::fixture::config_maps;

    fn of_pass(pass: u64, awaits: Option<&Scope>) -> Outstanding {
        Outstanding {
            target: Target::Pass(PassId(pass), 0),
            deadline: Boot(pass),
            reservation: None,
            changes: false,
            awaits: awaits.cloned(),
        }
    }

    #[test]
    fn a_call_is_found_by_its_pass_and_by_its_scope_until_it_ends() {
        let scope = config_maps();
        let mut calls = Calls::default();
        let [read, of_other, waits, last] = [(7, None), (8, None), (7, Some(&scope)), (9, Some(&scope))]
            .map(|(pass, awaits)| calls.insert(of_pass(pass, awaits)));
        assert_eq!(calls.of_pass(PassId(7)).collect::<Vec<_>>(), [read, waits]);
        assert_eq!(calls.of_pass(PassId(8)).collect::<Vec<_>>(), [of_other]);
        assert_eq!(calls.unsynced[&scope], BTreeSet::from([waits, last]));
        assert_eq!(calls.next_deadline(), Some(Boot(7)), "the earliest of all");
        for id in [read, waits, of_other, last] {
            assert!(calls.await_list_of(&scope));
            assert!(calls.remove(id).is_some() && calls.remove(id).is_none());
        }
        assert!(!calls.await_list_of(&scope));
        assert!(calls.outstanding.is_empty() && calls.of_passes.is_empty());
        assert_eq!(calls.next_deadline(), None);
    }
}
