//! Calls: who waits for which reply, and until when.

use std::sync::Arc;

use super::passes::Running;
use super::reschedule::Question;
use super::{Controller, Output};
use crate::call::{Call, CallId, Reply};
use crate::contract::{Code, Failure};
use crate::key::PassId;
use crate::reconcile::PhaseEvent;

/// A call under way.
#[derive(Debug)]
pub(super) struct Outstanding {
    target: Target,
    deadline: u64,
    /// The binding whose room in the cloud it takes.
    cloud: Option<Arc<str>>,
}

/// Who waits for a reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// A pass, and the slot in its phase.
    Pass(PassId, usize),
    /// A key that waits, of a retry policy that is another now.
    Reschedule(Box<Question>),
    /// Nobody: an Event.
    Nobody,
    Lease {
        wrote: bool,
    },
}

/// What waits until its cloud has room.
#[derive(Debug)]
pub(super) enum Delayed {
    /// A question, ready to be sent.
    Ask {
        pass: PassId,
        slot: usize,
        call: Box<Call>,
        longest: u64,
    },
    /// A change of a pass, which looks again whether it may begin.
    Change(PassId),
}

impl Controller {
    /// Emits a call; its reply, or a failure once `longest` milliseconds have gone by, goes to `target`.
    pub(super) fn emit(&mut self, target: Target, call: Call, longest: u64) -> CallId {
        let id = self.expect(target, longest, None);
        self.out.push(Output::Call { id, call });
        id
    }

    /// Registers a reply, which comes from within where nothing is emitted: a watch that lists.
    pub(super) fn expect(&mut self, target: Target, longest: u64, cloud: Option<Arc<str>>) -> CallId {
        self.last_call += 1;
        let id = CallId(self.last_call);
        let deadline = self.now.boot.saturating_add(longest);
        let outstanding = Outstanding {
            target,
            deadline,
            cloud,
        };
        self.calls.insert(id, outstanding);
        self.call_deadlines.insert((deadline, id));
        id
    }

    /// Calls a cloud, as soon as it has room.
    pub(super) fn call_cloud(&mut self, running: &Running, slot: usize, call: Call, longest: u64) {
        let (pass, binding) = (running.frame.id, &running.frame.key.binding);
        let under_way = self.cloud_calls.entry(binding.clone()).or_default();
        if *under_way < running.frame.binding.spec.limits.cloud_calls {
            *under_way += 1;
            return self.send_to_cloud(binding.clone(), pass, slot, call, longest);
        }
        let call = Box::new(call);
        let delayed = Delayed::Ask {
            pass,
            slot,
            call,
            longest,
        };
        self.delayed
            .entry(binding.clone())
            .or_default()
            .push_back(delayed);
    }

    /// A change of a pass waits until the cloud has room.
    pub(super) fn line_up(&mut self, binding: Arc<str>, pass: PassId) {
        let line = self.delayed.entry(binding).or_default();
        line.push_back(Delayed::Change(pass));
    }

    fn send_to_cloud(&mut self, binding: Arc<str>, pass: PassId, slot: usize, call: Call, longest: u64) {
        let id = self.expect(Target::Pass(pass, slot), longest, Some(binding));
        self.out.push(Output::Call { id, call });
    }

    /// Gives back the room that a call took, to the next in line.
    fn release_cloud(&mut self, binding: &Arc<str>) {
        while let Some(next) = self.delayed.get_mut(binding).and_then(|line| line.pop_front()) {
            match next {
                Delayed::Ask {
                    pass,
                    slot,
                    call,
                    longest,
                } if self.passes.contains_key(&pass) => {
                    return self.send_to_cloud(binding.clone(), pass, slot, *call, longest);
                }
                Delayed::Change(pass) if self.passes.contains_key(&pass) => {
                    self.parked.push(pass);
                    break;
                }
                _ => {}
            }
        }
        if let Some(under_way) = self.cloud_calls.get_mut(binding) {
            *under_way = under_way.saturating_sub(1);
        }
    }

    /// Whether a write outside of any pass is under way: an Event.
    pub(super) fn is_writing(&self) -> bool {
        self.calls.values().any(|call| call.target == Target::Nobody)
    }

    fn forget_call(&mut self, id: CallId) -> Option<Target> {
        let outstanding = self.calls.remove(&id)?;
        self.call_deadlines.remove(&(outstanding.deadline, id));
        if let Some(binding) = &outstanding.cloud {
            self.release_cloud(binding);
        }
        Some(outstanding.target)
    }

    /// Takes in a reply. One that nobody waits for any more is dropped.
    pub(super) fn returned(&mut self, id: CallId, reply: Reply) {
        match self.forget_call(id) {
            None | Some(Target::Nobody) => {}
            Some(Target::Pass(pass, slot)) => self.happen(pass, PhaseEvent::Reply(slot, reply)),
            Some(Target::Reschedule(asked)) => self.rescheduled(&asked, Some(reply)),
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
        if let Some(Target::Pass(pass, slot)) = self.forget_call(id) {
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
            match self.forget_call(id) {
                None | Some(Target::Nobody) => {}
                Some(Target::Pass(pass, slot)) => self.happen(pass, PhaseEvent::Cut(slot)),
                Some(Target::Reschedule(asked)) => self.rescheduled(&asked, None),
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
        for id in calls.map(|(id, _)| *id).collect::<Vec<CallId>>() {
            self.out.push(Output::Cancel(id));
            self.forget_call(id);
        }
    }
}
