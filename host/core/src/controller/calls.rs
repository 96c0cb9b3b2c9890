//! Calls: who waits for which reply, and until when.

use std::sync::Arc;
use std::time::Duration;

use super::passes::Running;
use super::refresh::Refresh;
use super::reschedule::Question;
use super::rooms::{Room, Taken, Waiter, cost_of, room_of};
use super::{Controller, Output};
use crate::binding::Binding;
use crate::call::{Call, CallId, Reply};
use crate::contract::{Code, Failure};
use crate::key::PassId;
use crate::reconcile::{Frame, PhaseEvent};
use crate::time::Boot;

/// A call under way.
#[derive(Debug)]
pub(super) struct Outstanding {
    target: Target,
    deadline: Boot,
    /// The place in a room that it holds.
    taken: Option<Taken>,
}

/// Who waits for a reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// A pass, and the slot in its phase.
    Pass(PassId, usize),
    /// A key that waits, of a retry policy that is another now.
    Reschedule(Box<Question>),
    /// A key whose object is read before its next pass.
    Refresh(Box<Refresh>),
    /// Nobody: an Event.
    Nobody,
    Lease {
        wrote: bool,
    },
}

impl Controller {
    /// Makes a call as soon as its room has a place for this tenant queue; its reply, or a failure once `longest` has gone by since it
    /// was sent, goes to `target`.
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
            && let Some(taken) = self.rooms.take_kept(pass, &room)
        {
            return self.send(target, call, longest, Some(taken));
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

    /// A change of a pass waits until a room has a place for it, and looks again then.
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

    /// Serves those in tenant queue for a room, as long as there is a place.
    pub(super) fn admit(&mut self, room: &Room) {
        while let Some((taken, waiter)) = self.rooms.next(room) {
            match waiter {
                Waiter::Change(pass) => {
                    self.rooms.keep(pass, taken);
                    self.opened.push_back(pass);
                }
                // An Event that would outlast the lease is not worth a wait.
                Waiter::Call {
                    target: Target::Nobody,
                    longest,
                    ..
                } if !self.lease.covers(self.now, longest) => {
                    self.rooms.give_back(taken, Some(0));
                }
                Waiter::Call {
                    target,
                    call,
                    longest,
                } => self.send(target, *call, longest, Some(taken)),
            }
        }
    }

    pub(super) fn send(&mut self, target: Target, call: Call, longest: Duration, taken: Option<Taken>) {
        let is_long = taken.as_ref().is_some_and(Taken::is_long);
        let id = self.expect(target, longest, taken);
        self.out.push(Output::Call { id, call, is_long });
    }

    /// Registers a reply, which comes from within where nothing is sent: a watch that lists.
    pub(super) fn expect(&mut self, target: Target, longest: Duration, taken: Option<Taken>) -> CallId {
        self.last_call += 1;
        let id = CallId(self.last_call);
        let deadline = self.now.boot + longest;
        let outstanding = Outstanding {
            target,
            deadline,
            taken,
        };
        self.calls.insert(id, outstanding);
        self.call_deadlines.insert((deadline, id));
        id
    }

    /// Whether a write outside of any pass is under way, or waits: an Event.
    pub(super) fn is_writing(&self) -> bool {
        self.rooms.has_events() || self.calls.values().any(|call| call.target == Target::Nobody)
    }

    /// A call is over: its place goes to the next in tenant queue.
    fn forget_call(&mut self, id: CallId, cost: Option<u64>) -> Option<Target> {
        let outstanding = self.calls.remove(&id)?;
        self.call_deadlines.remove(&(outstanding.deadline, id));
        if let Some(taken) = outstanding.taken {
            let room = self.rooms.give_back(taken, cost);
            self.admit(&room);
        }
        Some(outstanding.target)
    }

    /// Takes in a reply. One that nobody waits for any more is dropped.
    pub(super) fn returned(&mut self, id: CallId, reply: Reply) {
        match self.forget_call(id, cost_of(&reply)) {
            None | Some(Target::Nobody) => {}
            Some(Target::Pass(pass, slot)) => self.happen(pass, PhaseEvent::Reply(slot, reply)),
            Some(Target::Reschedule(asked)) => self.rescheduled(&asked, Some(reply)),
            Some(Target::Refresh(asked)) => self.refreshed(&asked, Some(reply)),
            Some(Target::Lease { wrote }) => {
                let read = match reply {
                    Reply::Lease(read) => read,
                    other => Err(Failure::new(Code::Internal, format!("no lease: {other:?}"))),
                };
                self.lease.answered(self.now, wrote, read);
            }
        }
    }

    /// A question that waited for a watch is answered from it now.
    pub(super) fn has_listed(&mut self, id: CallId) {
        if let Some(Target::Pass(pass, slot)) = self.forget_call(id, None) {
            self.happen(pass, PhaseEvent::Listed(slot));
        }
    }

    /// Cuts the calls whose time is up: what they did is not known.
    pub(super) fn expire_calls(&mut self) {
        while let Some(&(at, id)) = self.call_deadlines.first() {
            if at > self.now.boot {
                return;
            }
            self.out.push(Output::Cancel(id));
            for calls in self.unsynced.values_mut() {
                calls.retain(|call| *call != id);
            }
            self.unsynced.retain(|_, calls| !calls.is_empty());
            match self.forget_call(id, None) {
                None | Some(Target::Nobody) => {}
                Some(Target::Pass(pass, slot)) => self.happen(pass, PhaseEvent::Cut(slot)),
                Some(Target::Reschedule(asked)) => self.rescheduled(&asked, None),
                Some(Target::Refresh(asked)) => self.refreshed(&asked, None),
                Some(Target::Lease { .. }) => {
                    let failure = Failure::new(Code::DeadlineExceeded, "no answer in time");
                    self.lease.answered(self.now, false, Err(failure));
                }
            }
        }
    }

    /// Drops every call that a pass still waits for.
    pub(super) fn cancel_calls(&mut self, pass: PassId) {
        let of_pass = |call: &Outstanding| matches!(call.target, Target::Pass(p, _) if p == pass);
        let calls = self.calls.iter().filter(|(_, call)| of_pass(call));
        let calls = calls.map(|(id, _)| *id).collect::<Vec<CallId>>();
        let room = self.rooms.forget(pass);
        for id in calls {
            self.out.push(Output::Cancel(id));
            self.forget_call(id, None);
        }
        if let Some(room) = room {
            self.admit(&room);
        }
    }
}
