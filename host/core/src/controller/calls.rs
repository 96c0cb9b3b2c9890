//! Calls are sent, come back, and are cut.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Controller, Guard, Output};
use crate::binding::Binding;
use crate::call::{CallId, Reply, Scope};
use crate::contract::{Code, Failure};
use crate::key::PassId;
use crate::reconcile::{CLUSTER_LONGEST, PhaseEvent};
use crate::shared::calls::{Outstanding, Uncovered};
use crate::shared::rooms::{Reservation, Room, cost_of, room_of};
use crate::shared::waiter::{NotSent, Target, Waiter};
use crate::time::Boot;

/// What becomes of a call whose turn it is.
enum Turn {
    /// It is sent. No request of it that changes something may begin from this moment on.
    Now(Boot),
    /// It waits for the renewal of the lease.
    AfterRenewal,
    Never(NotSent),
}

impl Controller {
    /// Makes a call as soon as its room has a place for this tenant queue. The reply goes to its target. If none comes
    /// within the longest time after the call was sent, the target gets a cut or a failure instead.
    pub(super) fn call(&mut self, tenant_queue: &Arc<str>, binding: &Binding, waiter: Waiter) {
        match room_of(&waiter.call, &binding.name) {
            Some(room) => {
                self.shared.rooms.enqueue(&room, tenant_queue, binding, waiter);
                self.admit(&room);
            }
            None => self.send(waiter, None, Boot::MAX),
        }
    }

    /// Gives the free places of a room to its waiters, in the order that the room chooses. Changes are looked at here for
    /// the last time: they may have waited long.
    pub(super) fn admit(&mut self, room: &Room) {
        while let Some((reservation, ticket, waiter)) = self.shared.rooms.next(room) {
            let turn = self.turn_of(&waiter);
            if let Turn::Now(begin_by) = turn {
                self.send(waiter, Some(reservation), begin_by);
                continue;
            }
            let tenant_queue = reservation.tenant_queue().clone();
            // A place that was not used costs nothing.
            self.shared.rooms.give_back(reservation, Some(0));
            match (turn, &waiter.target) {
                (Turn::Never(why), Target::Pass(pass, _)) => {
                    self.passes.not_sent.push_back((*pass, why));
                }
                (Turn::AfterRenewal, Target::Pass(..)) => {
                    self.shared.calls.await_renewal(Uncovered {
                        room: room.clone(),
                        tenant_queue,
                        ticket,
                        waiter,
                    });
                }
                // An Event is not worth a wait.
                _ => {}
            }
        }
    }

    /// Whether a call may be sent now. A change must end while this host holds the lease, because another host may act
    /// after it.
    fn turn_of(&self, waiter: &Waiter) -> Turn {
        let (shared, now) = (&self.shared, self.shared.now);
        let Some(terms) = &waiter.terms else {
            return Turn::Now(Boot::MAX);
        };
        if shared.cutting {
            return Turn::Never(NotSent::Cut);
        }
        let covered = match shared.lease.begin_by(now, waiter.longest) {
            None if !shared.guards.stand(Guard::Fencing) => Boot::MAX,
            None if shared.lease.is_held(now) => return Turn::AfterRenewal,
            None => return Turn::Never(NotSent::LeaseLost),
            Some(covered) => covered,
        };
        if terms
            .first
            .as_ref()
            .is_some_and(|primary| !primary.is_so(&shared.cache))
        {
            return Turn::Never(NotSent::PrimaryChanged);
        }
        if !shared.guards.stand(Guard::ChangesBeginInTime) {
            return Turn::Now(Boot::MAX);
        }
        match covered.min(terms.begin_by) {
            begin_by if begin_by > now.boot => Turn::Now(begin_by),
            _ => Turn::Never(NotSent::Late),
        }
    }

    /// The lease was renewed: the changes that waited for it come first.
    pub(super) fn admit_uncovered(&mut self) {
        let uncovered = self.shared.calls.renewed();
        let rooms: BTreeSet<Room> = uncovered.iter().map(|change| change.room.clone()).collect();
        for change in uncovered {
            let Uncovered {
                room,
                tenant_queue,
                ticket,
                waiter,
            } = change;
            self.shared.rooms.put(&room, &tenant_queue, ticket, waiter);
        }
        for room in rooms {
            self.admit(&room);
        }
    }

    pub(super) fn send(&mut self, waiter: Waiter, reservation: Option<Reservation>, begin_by: Boot) {
        let Waiter {
            target,
            call,
            longest,
            terms,
        } = waiter;
        let is_long = reservation.as_ref().is_some_and(Reservation::is_long);
        let tenant_queue = reservation.as_ref().map(|place| place.tenant_queue().clone());
        let pass = match &target {
            Target::Pass(pass, _) => Some(*pass),
            _ => None,
        };
        let id = self.shared.calls.insert(Outstanding {
            target,
            deadline: self.shared.now.boot + longest,
            reservation,
            changes: terms.is_some(),
            awaits: None,
        });
        self.out.push(Output::Call {
            id,
            call: *call,
            is_long,
            tenant_queue,
            pass,
            begin_by,
        });
    }

    /// Makes a question of a pass wait for the first list of a watch. No call is sent: the controller itself answers
    /// with [`Controller::on_listed`].
    pub(super) fn await_list(&mut self, pass: PassId, slot: usize, scope: Scope) {
        self.shared.calls.insert(Outstanding {
            target: Target::Pass(pass, slot),
            deadline: self.shared.now.boot + CLUSTER_LONGEST,
            reservation: None,
            changes: false,
            awaits: Some(scope),
        });
    }

    /// Whether a write of an Event is in flight or waits for a place. Events are the only writes outside of a pass.
    pub(super) fn is_writing(&self) -> bool {
        let mut calls = self.shared.calls.outstanding.values();
        self.shared.rooms.has_events() || calls.any(|call| call.target == Target::Nobody)
    }

    /// Removes a call that ended and gives its place in the room to the next waiter. Returns the receiver of the
    /// reply.
    fn forget_call(&mut self, id: CallId, cost: Option<u64>) -> Option<Target> {
        let outstanding = self.shared.calls.remove(id)?;
        if let Some(reservation) = outstanding.reservation {
            let room = self.shared.rooms.give_back(reservation, cost);
            self.admit(&room);
        }
        Some(outstanding.target)
    }

    /// Charges the tenant queue for which a call is made with fuel that was not spent by its policies.
    pub(super) fn on_spent(&mut self, id: CallId, fuel: u64) {
        let call = self.shared.calls.outstanding.get(&id);
        let reservation = call.and_then(|call| call.reservation.as_ref());
        if let Some(reservation) = reservation {
            self.shared.rooms.charge(reservation, fuel);
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
                self.shared.lease.answered(self.shared.now, wrote, read);
            }
        }
    }

    /// Tells the passes that waited for a watch that it has listed.
    pub(super) fn on_listed(&mut self, scope: &Scope) {
        for id in self.shared.calls.unsynced.get(scope).cloned().unwrap_or_default() {
            if let Some(Target::Pass(pass, slot)) = self.forget_call(id, None) {
                self.on_event(pass, PhaseEvent::Listed(slot));
            }
        }
    }

    /// Cuts the calls whose deadline has passed. A cut write may have been performed or not, so the pass treats its
    /// result as unknown.
    pub(super) fn expire_calls(&mut self) {
        while let Some(&(at, id)) = self.shared.calls.deadlines.first() {
            if at > self.shared.now.boot {
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
                    self.shared.lease.answered(self.shared.now, false, Err(failure));
                }
            }
        }
    }

    /// Cancels every call that a pass still waits for, and its waits for rooms and memory.
    pub(super) fn cancel_calls(&mut self, pass: PassId) {
        self.shared.journals.wait_no_more(pass);
        self.shared.rooms.forget(pass);
        self.shared.calls.forget_uncovered(pass);
        self.passes.not_sent.retain(|(of, ..)| *of != pass);
        for id in self.shared.calls.of_pass(pass).collect::<Vec<_>>() {
            self.out.push(Output::Cancel(id));
            self.forget_call(id, None);
        }
    }
}
