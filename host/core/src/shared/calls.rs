//! The calls that passes and keys wait for, from the moment at which they are asked for until they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, CallId, Scope};
use crate::fair::{FairQueue, Quota, Ticket};
use crate::key::PassId;
use crate::time::Boot;

use super::capacity::Capacity;
use super::terms::{Receiver, Terms};

/// Calls that wait for a place, and calls in flight. Each is found by what ends it: its reply, its deadline, its pass, or the
/// list of a watch. So the end of a call costs as much as that call, however many others there are.
///
/// Whether a change was sent is known here alone.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    last: u64,
    outstanding: BTreeMap<CallId, CallState>,
    deadlines: BTreeSet<(Boot, CallId)>,
    of_passes: BTreeSet<(PassId, CallId)>,
    /// Questions that wait for the first list of a watch.
    unsynced: BTreeMap<Scope, BTreeSet<CallId>>,
    /// Changes that the lease does not cover before its renewal, in the order in which they had their turn.
    uncovered: Vec<CallId>,
    queues: BTreeMap<Capacity, (Quota, FairQueue<CallId>)>,
}

/// A call that somebody waits for.
#[derive(Debug)]
struct CallState {
    receiver: Receiver,
    stage: Stage,
    place: Option<Claim>,
    /// The call, until it is sent; `None` if the pass wants nothing but the place.
    unsent: Option<Box<UnsentCall>>,
    deadline: Option<Boot>,
    /// Whether it changes something outside.
    changes: bool,
    /// The scope whose list the question waits for, if there is no call.
    lists: Option<Scope>,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for a place.
    Waits,
    /// It has a place, and is not sent.
    Holds,
    /// It has had its turn, and waits for the renewal of the lease. It holds no place meanwhile.
    Uncovered,
    /// It is in flight, or waits for a list.
    Sent,
}

/// A place among those of a capacity.
#[derive(Clone, Debug)]
struct Claim {
    capacity: Capacity,
    tenant_queue: Arc<str>,
    ticket: Ticket,
}

/// A call that is not sent yet.
#[derive(Debug)]
pub(crate) struct UnsentCall {
    pub(crate) call: Call,
    /// How long it may take. `None` for what a worker of this host does: that always ends, and may wait long for its turn.
    pub(crate) longest: Option<Duration>,
    /// The terms of a call that changes something.
    pub(crate) terms: Option<Terms>,
}

impl Calls {
    /// Adds a call that needs no place.
    pub(crate) fn insert(&mut self, receiver: Receiver) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        if let Receiver::Pass(pass, _) = receiver {
            self.of_passes.insert((pass, id));
        }
        let outstanding = CallState {
            receiver,
            stage: Stage::Holds,
            place: None,
            unsent: None,
            deadline: None,
            changes: false,
            lists: None,
        };
        self.outstanding.insert(id, outstanding);
        id
    }

    /// Makes a call wait for one of so many places. Without a call its pass holds the place until it ends.
    pub(crate) fn wait(
        &mut self,
        receiver: Receiver,
        (capacity, places): (Capacity, Quota),
        tenant_queue: &Arc<str>,
        unsent: Option<Box<UnsentCall>>,
    ) {
        let id = self.insert(receiver);
        let queue = self.queues.entry(capacity.clone()).or_default();
        queue.0 = places;
        let ticket = queue.1.push(tenant_queue, id);
        if let Some(call) = self.outstanding.get_mut(&id) {
            (call.stage, call.unsent) = (Stage::Waits, unsent);
            call.place = Some(Claim {
                capacity,
                tenant_queue: tenant_queue.clone(),
                ticket,
            });
        }
    }

    /// Makes a question of a pass wait for the first list of a watch, until a deadline.
    pub(crate) fn await_list(&mut self, receiver: Receiver, scope: Scope, deadline: Boot) {
        let id = self.insert(receiver);
        self.unsynced.entry(scope.clone()).or_default().insert(id);
        if let Some(call) = self.outstanding.get_mut(&id) {
            call.lists = Some(scope);
        }
        self.sent(id, Some(deadline), false);
    }

    /// Gives the next place of a capacity to the call that has its turn. Returns what is to be sent; `None` if its pass just
    /// holds the place.
    pub(crate) fn next(
        &mut self,
        capacity: &Capacity,
    ) -> Option<(CallId, Receiver, Option<Box<UnsentCall>>)> {
        let (places, queue) = self.queues.get_mut(capacity)?;
        let (_, _, id) = queue.next(*places)?;
        let call = self.outstanding.get_mut(&id)?;
        call.stage = Stage::Holds;
        Some((id, call.receiver.clone(), call.unsent.take()))
    }

    /// Stores that a call is sent. Returns its tenant queue, if it has a place.
    pub(crate) fn sent(&mut self, id: CallId, deadline: Option<Boot>, changes: bool) -> Option<Arc<str>> {
        let call = self.outstanding.get_mut(&id)?;
        (call.stage, call.deadline, call.changes) = (Stage::Sent, deadline, changes);
        self.deadlines.extend(deadline.map(|at| (at, id)));
        call.place.as_ref().map(|place| place.tenant_queue.clone())
    }

    /// Makes a change that has had its turn wait for the renewal of the lease.
    pub(crate) fn await_renewal(&mut self, id: CallId, unsent: Box<UnsentCall>) {
        let Some(call) = self.outstanding.get_mut(&id) else {
            return;
        };
        (call.stage, call.unsent) = (Stage::Uncovered, Some(unsent));
        let place = call.place.clone();
        self.uncovered.push(id);
        self.give_back(place.as_ref());
    }

    /// The lease was renewed: the changes that waited for it come first. Returns the capacities where they wait now.
    pub(crate) fn renewed(&mut self) -> BTreeSet<Capacity> {
        let mut capacities = BTreeSet::new();
        for id in std::mem::take(&mut self.uncovered) {
            let Some(call) = self.outstanding.get_mut(&id) else {
                continue;
            };
            call.stage = Stage::Waits;
            if let Some(place) = &call.place {
                let (_, queue) = self.queues.entry(place.capacity.clone()).or_default();
                queue.put(&place.tenant_queue, place.ticket, id);
                capacities.insert(place.capacity.clone());
            }
        }
        capacities
    }

    /// Removes a call that ended, or that nobody waits for any more. Returns whose it was, and the capacity that has a place
    /// more now.
    pub(crate) fn remove(&mut self, id: CallId) -> Option<(Receiver, Option<Capacity>)> {
        let call = self.outstanding.remove(&id)?;
        if let Some(at) = call.deadline {
            self.deadlines.remove(&(at, id));
        }
        if let Receiver::Pass(pass, _) = call.receiver {
            self.of_passes.remove(&(pass, id));
        }
        if let Some(scope) = &call.lists
            && let Some(waiting) = self.unsynced.get_mut(scope)
        {
            waiting.remove(&id);
            if waiting.is_empty() {
                self.unsynced.remove(scope);
            }
        }
        match (call.stage, &call.place) {
            (Stage::Waits, Some(place)) => {
                if let Some((_, queue)) = self.queues.get_mut(&place.capacity) {
                    queue.remove(&place.tenant_queue, place.ticket);
                }
                Some((call.receiver, None))
            }
            (Stage::Holds | Stage::Sent, place) => {
                self.give_back(place.as_ref());
                Some((call.receiver, call.place.map(|place| place.capacity)))
            }
            _ => Some((call.receiver, None)),
        }
    }

    fn give_back(&mut self, place: Option<&Claim>) {
        if let Some(place) = place
            && let Some((_, queue)) = self.queues.get_mut(&place.capacity)
        {
            queue.end(&place.tenant_queue, 0);
        }
    }

    /// Removes the clouds of bindings that are gone, once no call is in flight or waits there.
    pub(crate) fn tidy(&mut self, is_bound: impl Fn(&str) -> bool) {
        self.queues.retain(|capacity, (_, queue)| match capacity {
            Capacity::Cloud(binding) => is_bound(binding) || !queue.is_empty(),
            _ => true,
        });
    }

    /// The earliest time at which a call is cut.
    pub(crate) fn next_deadline(&self) -> Option<Boot> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A call whose deadline has passed.
    pub(crate) fn overdue(&self, now: Boot) -> Option<CallId> {
        let (at, id) = self.deadlines.first()?;
        (*at <= now).then_some(*id)
    }

    /// Whether a question waits for the first list of a watch.
    pub(crate) fn await_list_of(&self, scope: &Scope) -> bool {
        self.unsynced.contains_key(scope)
    }

    /// The questions that wait for the first list of a watch.
    pub(crate) fn awaiting_list(&self, scope: &Scope) -> Vec<CallId> {
        let waiting = self.unsynced.get(scope).into_iter().flatten();
        waiting.copied().collect()
    }

    /// The calls of a pass, each with whether it is in flight.
    pub(crate) fn of_pass(&self, pass: PassId) -> impl Iterator<Item = (CallId, bool)> {
        let calls = self.all_of(pass);
        calls.map(|(id, call)| (id, call.stage == Stage::Sent && call.lists.is_none()))
    }

    fn all_of(&self, pass: PassId) -> impl Iterator<Item = (CallId, &CallState)> {
        let calls = self.of_passes.range((pass, CallId(0))..=(pass, CallId(u64::MAX)));
        calls.filter_map(|(_, id)| Some((*id, self.outstanding.get(id)?)))
    }

    /// The pass that waits for a call, if a pass does.
    pub(crate) fn pass_of(&self, id: CallId) -> Option<PassId> {
        match self.outstanding.get(&id)?.receiver {
            Receiver::Pass(pass, _) => Some(pass),
            _ => None,
        }
    }

    /// Whether a pass has sent a change that is not answered. It may take effect, so the lease must be kept until it is
    /// answered or cut: the next holder relies on that.
    pub(crate) fn change_in_flight(&self, pass: PassId) -> bool {
        self.all_of(pass).any(|(_, call)| call.changes)
    }

    /// Where a pass waits for a place.
    pub(crate) fn awaits_place(&self, pass: PassId) -> Option<&Capacity> {
        let waiting = self.all_of(pass).filter(|(_, call)| call.stage == Stage::Waits);
        let capacities = waiting.filter_map(|(_, call)| call.place.as_ref());
        capacities.map(|place| &place.capacity).max()
    }

    /// Whether a pass waits for the renewal of the lease.
    pub(crate) fn awaits_renewal(&self, pass: PassId) -> bool {
        self.all_of(pass).any(|(_, call)| call.stage == Stage::Uncovered)
    }

    /// Whether a pass may hold texts of any size.
    pub(crate) fn is_large(&self, pass: PassId) -> bool {
        self.all_of(pass).any(|(_, call)| {
            let place = call.place.as_ref();
            call.stage == Stage::Holds && place.is_some_and(|place| place.capacity == Capacity::Large)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::fixture::config_maps;

    fn of(pass: u64) -> Receiver {
        Receiver::Pass(PassId(pass), 0)
    }

    #[test]
    fn a_call_is_found_by_its_pass_and_by_its_scope_until_it_ends() {
        let scope = config_maps();
        let mut calls = Calls::default();
        let read = calls.insert(of(7));
        let of_other = calls.insert(of(8));
        calls.sent(read, Some(Boot(7)), false);
        calls.sent(of_other, Some(Boot(8)), true);
        calls.await_list(of(7), scope.clone(), Boot(9));
        calls.await_list(of(9), scope.clone(), Boot(9));
        let lists = calls.awaiting_list(&scope);
        let of_7: Vec<_> = calls.of_pass(PassId(7)).collect();
        assert_eq!(of_7, [(read, true), (lists[0], false)]);
        assert!(!calls.change_in_flight(PassId(7)) && calls.change_in_flight(PassId(8)));
        assert_eq!((calls.next_deadline(), lists.len()), (Some(Boot(7)), 2));
        assert_eq!(
            (calls.overdue(Boot(6)), calls.overdue(Boot(7))),
            (None, Some(read))
        );
        for id in [read, lists[0], of_other, lists[1]] {
            assert!(calls.await_list_of(&scope));
            assert!(calls.remove(id).is_some() && calls.remove(id).is_none());
        }
        assert!(!calls.await_list_of(&scope));
        assert!(calls.outstanding.is_empty() && calls.of_passes.is_empty());
        assert_eq!(calls.next_deadline(), None);
    }

    #[test]
    fn a_change_that_the_lease_did_not_cover_comes_first_after_its_renewal() {
        let mut calls = Calls::default();
        let (queue, places) = ("t".into(), (Capacity::Writes, Quota::new(2)));
        for pass in 1..=3 {
            calls.wait(of(pass), places.clone(), &queue, Some(unsent()));
        }
        let (first, _, unsent) = calls.next(&Capacity::Writes).expect("a place");
        assert!(calls.next(&Capacity::Writes).is_none(), "one is kept for others");
        calls.await_renewal(first, unsent.expect("a call"));
        assert!(calls.awaits_renewal(PassId(1)) && !calls.awaits_renewal(PassId(2)));
        let (second, ..) = calls.next(&Capacity::Writes).expect("the place of the first");
        assert_eq!(calls.renewed(), BTreeSet::from([Capacity::Writes]));
        assert_eq!(calls.remove(second), Some((of(2), Some(Capacity::Writes))));
        let (next, receiver, _) = calls.next(&Capacity::Writes).expect("a place");
        assert_eq!((next, receiver), (first, of(1)));
        assert_eq!(calls.awaits_place(PassId(3)), Some(&Capacity::Writes));
    }

    #[test]
    fn a_cloud_of_a_binding_that_is_gone_is_forgotten_when_nothing_is_under_way() {
        let mut calls = Calls::default();
        let cloud = Capacity::Cloud("gone".into());
        let places = (cloud.clone(), Quota::halved(2));
        calls.wait(of(1), places.clone(), &"t".into(), Some(unsent()));
        let (id, ..) = calls.next(&cloud).expect("a place");
        calls.tidy(|_| false);
        assert_eq!(calls.queues.len(), 1);
        calls.remove(id);
        calls.tidy(|_| true);
        assert_eq!(calls.queues.len(), 1);
        calls.tidy(|_| false);
        assert!(calls.queues.is_empty());
    }

    fn unsent() -> Box<UnsentCall> {
        Box::new(UnsentCall {
            call: Call::Lease(None),
            longest: None,
            terms: None,
        })
    }
}
