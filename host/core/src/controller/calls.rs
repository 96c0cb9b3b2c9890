//! Calls are sent, come back, and are cut.

use std::sync::Arc;
use std::time::Duration;

use super::passes::Running;
use super::{Controller, Output};
use crate::binding::Binding;
use crate::call::{Call, CallId, Reply, Scope};
use crate::contract::{Code, Failure};
use crate::key::PassId;
use crate::reconcile::{CLUSTER_LONGEST, Frame, PhaseEvent};
use crate::shared::calls::{Outstanding, Target};
use crate::shared::rooms::{Reservation, Room, Waiter, cost_of, room_of};

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
            && let Some(reservation) = self.shared.rooms.take_kept(pass, &room)
        {
            return self.send(target, call, longest, Some(reservation));
        }
        let call = Box::new(call);
        let waiter = Waiter::Call {
            target,
            call,
            longest,
        };
        self.shared.rooms.enqueue(&room, tenant_queue, binding, waiter);
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
        self.shared
            .rooms
            .enqueue(room, tenant_queue, binding, Waiter::Change(*id));
        self.admit(room);
    }

    /// Gives the free places of a room to its waiters, in the order that the room chooses.
    pub(super) fn admit(&mut self, room: &Room) {
        while let Some((reservation, waiter)) = self.shared.rooms.next(room) {
            match waiter {
                Waiter::Change(pass) => {
                    self.shared.rooms.keep(pass, reservation);
                    self.passes.opened.push_back(pass);
                }
                // An Event that could land after the end of the lease is dropped: another host may then hold the
                // lease, and an Event is not worth a wait.
                Waiter::Call {
                    target: Target::Nobody,
                    longest,
                    ..
                } if !self.shared.lease.covers(self.shared.now, longest) => {
                    self.shared.rooms.give_back(reservation, Some(0));
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
        let id = self.shared.calls.insert(Outstanding {
            target,
            deadline: self.shared.now.boot + longest,
            reservation,
            awaits: None,
        });
        self.out.push(Output::Call {
            id,
            call,
            is_long,
            tenant_queue,
            pass,
            begin_by: self.shared.lease.begin_by(self.shared.now, longest),
        });
    }

    /// Makes a question of a pass wait for the first list of a watch. No call is sent: the controller itself answers
    /// with [`Controller::on_listed`].
    pub(super) fn await_list(&mut self, pass: PassId, slot: usize, scope: Scope) {
        self.shared.calls.insert(Outstanding {
            target: Target::Pass(pass, slot),
            deadline: self.shared.now.boot + CLUSTER_LONGEST,
            reservation: None,
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
        let room = self.shared.rooms.forget(pass);
        for id in self.shared.calls.of_pass(pass) {
            self.out.push(Output::Cancel(id));
            self.forget_call(id, None);
        }
        if let Some(room) = room {
            self.admit(&room);
        }
    }
}
