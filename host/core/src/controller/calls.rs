//! Calls in flight: which pass or key waits for each reply, and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::passes::Running;
use super::refresh::Refresh;
use super::reschedule::Question;
use super::rooms::{Reservation, Room, Waiter, cost_of, room_of};
use super::{Controller, Output};
use crate::binding::Binding;
use crate::call::{Call, CallId, Reply, Scope};
use crate::contract::{Code, Failure};
use crate::key::PassId;
use crate::reconcile::{CLUSTER_LONGEST, Frame, PhaseEvent};
use crate::time::Boot;

/// The calls in flight. Each is found by what ends it: its reply, its deadline, its pass, or the list of a watch. So the
/// end of a call costs as much as that call, however many others there are.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: u64,
    outstanding: BTreeMap<CallId, Outstanding>,
    deadlines: BTreeSet<(Boot, CallId)>,
    of_passes: BTreeSet<(PassId, CallId)>,
    /// Questions that wait for the first list of a watch.
    unsynced: BTreeMap<Scope, BTreeSet<CallId>>,
}

/// A call in flight.
#[derive(Debug)]
struct Outstanding {
    target: Target,
    deadline: Boot,
    /// The place in a room that the call holds until it ends.
    reservation: Option<Reservation>,
    /// The scope whose list the question waits for, if no call was sent.
    awaits: Option<Scope>,
}

/// The receiver of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// A pass, and the slot of its phase that the reply fills.
    Pass(PassId, usize),
    /// A waiting key that asks the changed retry policy of its binding for a new wait.
    Reschedule(Box<Question>),
    /// A key whose primary is read before its next pass.
    Refresh(Box<Refresh>),
    /// No receiver: the call writes an Event, and a lost Event is accepted.
    Nobody,
    Lease {
        wrote: bool,
    },
}

impl Calls {
    fn insert(&mut self, outstanding: Outstanding) -> CallId {
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

    fn remove(&mut self, id: CallId) -> Option<Outstanding> {
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
    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Whether a question waits for the first list of a watch.
    pub(super) fn await_list_of(&self, scope: &Scope) -> bool {
        self.unsynced.contains_key(scope)
    }

    fn of_pass(&self, pass: PassId) -> Vec<CallId> {
        let calls = self.of_passes.range((pass, CallId(0))..=(pass, CallId(u64::MAX)));
        calls.map(|(_, id)| *id).collect()
    }
}

impl Controller {
    /// Makes a call as soon as its room has a place for this tenant queue. The reply goes to `target`. If none comes
    /// within `longest` after the call was sent, `target` gets a cut or a failure instead.
    pub(super) fn call(
        &mut self,
        tenant_queue: &Arc<str>,
        binding: &Binding,
        target: Target,
        call: Call,
        longest: Duration,
    ) {
        let Some(room) = room_of(&call, &binding.name) else {
            return self.send(target, call, longest, None);
        };
        if let Target::Pass(pass, _) = target
            && let Some(reservation) = self.rooms.take_kept(pass, &room)
        {
            return self.send(target, call, longest, Some(reservation));
        }
        let call = Box::new(call);
        let waiter = Waiter::Call {
            target,
            call,
            longest,
        };
        self.rooms.enqueue(&room, tenant_queue, binding, waiter);
        self.admit(&room);
    }

    /// Makes a write of a pass wait for a place in a room. The pass then checks again whether it may write, because
    /// the lease may have run down meanwhile.
    pub(super) fn await_room(&mut self, running: &Running, room: &Room) {
        let Frame {
            id,
            tenant_queue,
            binding,
            ..
        } = &running.frame;
        self.rooms
            .enqueue(room, tenant_queue, binding, Waiter::Change(*id));
        self.admit(room);
    }

    /// Gives the free places of a room to its waiters, in the order that the room chooses.
    pub(super) fn admit(&mut self, room: &Room) {
        while let Some((reservation, waiter)) = self.rooms.next(room) {
            match waiter {
                Waiter::Change(pass) => {
                    self.rooms.keep(pass, reservation);
                    self.opened.push_back(pass);
                }
                // An Event that could land after the end of the lease is dropped: another host may then hold the
                // lease, and an Event is not worth a wait.
                Waiter::Call {
                    target: Target::Nobody,
                    longest,
                    ..
                } if !self.lease.covers(self.now, longest) => {
                    self.rooms.give_back(reservation, Some(0));
                }
                Waiter::Call {
                    target,
                    call,
                    longest,
                } => self.send(target, *call, longest, Some(reservation)),
            }
        }
    }

    pub(super) fn send(
        &mut self,
        target: Target,
        call: Call,
        longest: Duration,
        reservation: Option<Reservation>,
    ) {
        let is_long = reservation.as_ref().is_some_and(Reservation::is_long);
        let tenant_queue = reservation.as_ref().map(|place| place.tenant_queue().clone());
        let pass = match &target {
            Target::Pass(pass, _) => Some(*pass),
            _ => None,
        };
        let id = self.calls.insert(Outstanding {
            target,
            deadline: self.now.boot + longest,
            reservation,
            awaits: None,
        });
        self.out.push(Output::Call {
            id,
            call,
            is_long,
            tenant_queue,
            pass,
            begin_by: self.lease.begin_by(self.now, longest),
        });
    }

    /// Makes a question of a pass wait for the first list of a watch. No call is sent: the controller itself answers
    /// with [`Controller::on_listed`].
    pub(super) fn await_list(&mut self, pass: PassId, slot: usize, scope: Scope) {
        self.calls.insert(Outstanding {
            target: Target::Pass(pass, slot),
            deadline: self.now.boot + CLUSTER_LONGEST,
            reservation: None,
            awaits: Some(scope),
        });
    }

    /// Whether a write of an Event is in flight or waits for a place. Events are the only writes outside of a pass.
    pub(super) fn is_writing(&self) -> bool {
        let mut calls = self.calls.outstanding.values();
        self.rooms.has_events() || calls.any(|call| call.target == Target::Nobody)
    }

    /// Removes a call that ended and gives its place in the room to the next waiter. Returns the receiver of the
    /// reply.
    fn forget_call(&mut self, id: CallId, cost: Option<u64>) -> Option<Target> {
        let outstanding = self.calls.remove(id)?;
        if let Some(reservation) = outstanding.reservation {
            let room = self.rooms.give_back(reservation, cost);
            self.admit(&room);
        }
        Some(outstanding.target)
    }

    /// Charges the tenant queue for which a call is made with fuel that was not spent by its policies.
    pub(super) fn on_spent(&mut self, id: CallId, fuel: u64) {
        let call = self.calls.outstanding.get(&id);
        let reservation = call.and_then(|call| call.reservation.as_ref());
        if let Some(reservation) = reservation {
            self.rooms.charge(reservation, fuel);
        }
    }

    /// Hands a reply to its receiver. A reply to a call that was cancelled is dropped.
    pub(super) fn on_returned(&mut self, id: CallId, reply: Reply) {
        match self.forget_call(id, cost_of(&reply)) {
            None | Some(Target::Nobody) => {}
            Some(Target::Pass(pass, slot)) => self.on_event(pass, PhaseEvent::Reply(slot, reply)),
            Some(Target::Reschedule(asked)) => self.on_rescheduled(&asked, Some(reply)),
            Some(Target::Refresh(asked)) => self.on_refreshed(&asked, Some(reply)),
            Some(Target::Lease { wrote }) => {
                let read = match reply {
                    Reply::Lease(read) => read,
                    other => Err(Failure::new(Code::Internal, format!("no lease: {other:?}"))),
                };
                self.lease.answered(self.now, wrote, read);
            }
        }
    }

    /// Tells the passes that waited for a watch that it has listed.
    pub(super) fn on_listed(&mut self, scope: &Scope) {
        for id in self.calls.unsynced.get(scope).cloned().unwrap_or_default() {
            if let Some(Target::Pass(pass, slot)) = self.forget_call(id, None) {
                self.on_event(pass, PhaseEvent::Listed(slot));
            }
        }
    }

    /// Cuts the calls whose deadline has passed. A cut write may have been performed or not, so the pass treats its
    /// result as unknown.
    pub(super) fn expire_calls(&mut self) {
        while let Some(&(at, id)) = self.calls.deadlines.first() {
            if at > self.now.boot {
                return;
            }
            self.out.push(Output::Cancel(id));
            match self.forget_call(id, None) {
                None | Some(Target::Nobody) => {}
                Some(Target::Pass(pass, slot)) => self.on_event(pass, PhaseEvent::Cut(slot)),
                Some(Target::Reschedule(asked)) => self.on_rescheduled(&asked, None),
                Some(Target::Refresh(asked)) => self.on_refreshed(&asked, None),
                Some(Target::Lease { .. }) => {
                    let failure = Failure::new(Code::DeadlineExceeded, "no answer in time");
                    self.lease.answered(self.now, false, Err(failure));
                }
            }
        }
    }

    /// Cancels every call that a pass still waits for, and its waits for rooms and memory.
    pub(super) fn cancel_calls(&mut self, pass: PassId) {
        self.journals.wait_no_more(pass);
        let room = self.rooms.forget(pass);
        for id in self.calls.of_pass(pass) {
            self.out.push(Output::Cancel(id));
            self.forget_call(id, None);
        }
        if let Some(room) = room {
            self.admit(&room);
        }
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
            awaits: awaits.cloned(),
        }
    }

    #[test]
    fn a_call_is_found_by_its_pass_and_by_its_scope_until_it_ends() {
        let scope = config_maps();
        let mut calls = Calls::default();
        let [read, of_other, waits, last] = [(7, None), (8, None), (7, Some(&scope)), (9, Some(&scope))]
            .map(|(pass, awaits)| calls.insert(of_pass(pass, awaits)));
        assert_eq!(calls.of_pass(PassId(7)), [read, waits]);
        assert_eq!(calls.of_pass(PassId(8)), [of_other]);
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
