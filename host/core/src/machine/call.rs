//! Calls: who waits for which reply, and until when.

use std::sync::Arc;

use super::pass::{PassState, Purpose};
use super::{Machine, Output};
use crate::binding::PolicyId;
use crate::call::{Call, CallId, Reply};
use crate::contract::{Code, Doubt, Failure, Trial};
use crate::key::{Key, PassId};
use crate::record::Outcome;

/// Milliseconds after which a read or write of the cluster is cut: the longest that any act may take.
pub(super) const CLUSTER_LONGEST: u64 = 5_000;
/// Milliseconds after which a policy that has not returned is given up; its own wall limit is far below.
pub(super) const STEP_LONGEST: u64 = 60_000;

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
    Pass(PassId, Purpose),
    /// A key that waits, of a retry policy that is another now.
    Redecide(Box<Redecision>),
    /// Nobody: an Event.
    Nobody,
    Lease {
        wrote: bool,
    },
}

/// What a retry policy is asked about a key that waits already.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Redecision {
    pub(super) key: Key,
    /// When the wait began: boot milliseconds.
    pub(super) since: u64,
    pub(super) policy: PolicyId,
    pub(super) trial: Trial,
}

/// What waits until its cloud has room.
#[derive(Debug)]
pub(super) enum Delayed {
    /// A question, ready to be sent.
    Ask {
        pass: PassId,
        purpose: Purpose,
        call: Box<Call>,
        longest: u64,
    },
    /// An act of a pass, which looks again whether it may begin.
    Act(PassId),
}

impl Machine {
    /// Emits a call; its reply, or a failure once `longest` milliseconds have gone by, goes to `target`.
    pub(super) fn emit(&mut self, target: Target, call: Call, longest: u64) -> CallId {
        let id = self.expect(target, longest, None);
        self.out.push(Output::Call { id, call });
        id
    }

    /// Registers a reply that comes from within: a watch that lists.
    pub(super) fn expect(&mut self, target: Target, longest: u64, cloud: Option<Arc<str>>) -> CallId {
        self.last_call += 1;
        let id = CallId(self.last_call);
        let deadline = self.now.boot.saturating_add(longest);
        self.calls.insert(
            id,
            Outstanding {
                target,
                deadline,
                cloud,
            },
        );
        self.call_deadlines.insert((deadline, id));
        id
    }

    /// Emits a call that changes something, only if it ends while the lease is held; else waits for a renewal.
    pub(super) fn fenced(&mut self, mut pass: Box<PassState>, purpose: Purpose, call: Call, longest: u64) {
        if self.cutting {
            return self.end(pass, Outcome::Stopped);
        }
        let covered = self.lease.covers(self.now, longest) || !self.guards.fencing;
        if covered {
            let cloud = matches!(call, Call::Cloud(_)).then(|| pass.key.binding.clone());
            if let Some(binding) = &cloud
                && !self.takes_room(&pass)
            {
                let line = self.delayed.entry(binding.clone()).or_default();
                line.push_back(Delayed::Act(pass.id));
                pass.parked = Some((purpose, call, longest));
                return self.suspend(pass);
            }
            if let Purpose::Answer { act: true, index, .. } = purpose {
                pass.acted = true;
                self.sends(&pass, index);
                self.health.entry(pass.key.binding.clone()).or_default().acts += 1;
            }
            let id = self.expect(Target::Pass(pass.id, purpose), longest, cloud);
            self.out.push(Output::Call { id, call });
            self.suspend(pass);
        } else if self.is_holder() {
            pass.parked = Some((purpose, call, longest));
            self.parked.push(pass.id);
            self.suspend(pass);
        } else {
            self.end(pass, Outcome::LeaseLost);
        }
    }

    /// Notes that what a pending entry announces is sent from here.
    fn sends(&mut self, pass: &PassState, index: usize) {
        let state = self.keys.get_mut(&pass.key);
        if let (Some(state), Some(entry)) = (state, pass.entered.get(&index))
            && let Some(known) = state.known.get_mut(&entry.key)
        {
            known.sent = true;
        }
    }

    pub(super) fn unpark(&mut self, mut pass: Box<PassState>) {
        match pass.parked.take() {
            // The world may have changed meanwhile.
            Some((Purpose::Answer { act: true, .. }, ..)) => self.perform(pass),
            Some((purpose, call, longest)) => self.fenced(pass, purpose, call, longest),
            None => self.suspend(pass),
        }
    }

    /// Asks a cloud, or lines up until it has room.
    pub(super) fn ask_cloud(&mut self, pass: &PassState, purpose: Purpose, call: Call, longest: u64) {
        let binding: Arc<str> = pass.key.binding.clone();
        if !self.takes_room(pass) {
            let delayed = Delayed::Ask {
                pass: pass.id,
                purpose,
                call: Box::new(call),
                longest,
            };
            self.delayed.entry(binding).or_default().push_back(delayed);
            return;
        }
        let id = self.expect(Target::Pass(pass.id, purpose), longest, Some(binding));
        self.out.push(Output::Call { id, call });
    }

    /// Takes room for a call to the cloud of the pass's binding, if there is any.
    fn takes_room(&mut self, pass: &PassState) -> bool {
        let under_way = self.cloud_calls.entry(pass.key.binding.clone()).or_default();
        let room = *under_way < pass.binding.spec.limits.cloud_calls;
        *under_way += u32::from(room);
        room
    }

    /// Gives back the room that a call took, to the next in line.
    fn release_cloud(&mut self, binding: &Arc<str>) {
        while let Some(next) = self.delayed.get_mut(binding).and_then(|line| line.pop_front()) {
            match next {
                Delayed::Ask {
                    pass,
                    purpose,
                    call,
                    longest,
                } if self.passes.contains_key(&pass) => {
                    let id = self.expect(Target::Pass(pass, purpose), longest, Some(binding.clone()));
                    self.out.push(Output::Call { id, call: *call });
                    return;
                }
                Delayed::Act(pass) if self.passes.contains_key(&pass) => {
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
        self.calls
            .values()
            .any(|call| matches!(call.target, Target::Nobody))
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
        if let Some(target) = self.forget_call(id) {
            self.deliver(target, reply);
        }
    }

    /// A question that waited for a watch is answered from it now.
    pub(super) fn answer_from_watch(&mut self, id: CallId) {
        if let Some(Target::Pass(id, Purpose::Answer { index, .. })) = self.forget_call(id)
            && let Some(pass) = self.passes.remove(&id)
        {
            self.watch_answered(pass, index);
        }
    }

    fn deliver(&mut self, target: Target, reply: Reply) {
        match (target, reply) {
            (Target::Pass(id, purpose), reply) => {
                if let Some(pass) = self.passes.remove(&id) {
                    self.resume(pass, purpose, reply);
                }
            }
            (Target::Redecide(asked), reply) => self.redecided(&asked, reply),
            (Target::Lease { wrote }, Reply::Lease(read)) => {
                self.lease.fails(read.as_ref().err().cloned());
                self.lease.answered(self.now, wrote && read.is_ok(), read.ok());
            }
            (Target::Lease { .. }, _) => {
                let failure = Failure::new(Code::DeadlineExceeded, "no answer in time");
                self.lease.fails(Some(failure));
                self.lease.answered(self.now, false, None);
            }
            _ => {}
        }
    }

    /// Cuts the calls whose time is up: what they did is not known.
    pub(super) fn expire_calls(&mut self) {
        while let Some(&(at, id)) = self.call_deadlines.first() {
            if at > self.now.boot {
                return;
            }
            self.out.push(Output::Cancel(id));
            if let Some(target) = self.forget_call(id) {
                let reply = match &target {
                    Target::Pass(_, Purpose::Answer { synced: false, .. }) => self.give_watch_up(id),
                    _ => cut(&target),
                };
                self.deliver(target, reply);
            }
        }
    }

    /// A question waits no longer for its watch, which may have said what keeps it.
    fn give_watch_up(&mut self, id: CallId) -> Reply {
        let waiting = self.unsynced.iter_mut().find(|(_, calls)| calls.contains(&id));
        let message = match waiting {
            None => "its watch has not listed in time".to_owned(),
            Some((scope, calls)) => {
                calls.retain(|call| *call != id);
                let why = self.cache.trouble(scope).unwrap_or("no answer in time");
                format!("the watch of {} has not listed: {why}", scope.kind.kind)
            }
        };
        self.unsynced.retain(|_, calls| !calls.is_empty());
        Reply::Answer(Err(Failure::new(Code::Unavailable, message)))
    }

    /// Drops every call that a pass still waits for.
    pub(super) fn cancel_calls(&mut self, pass: PassId) {
        let ids: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, o)| matches!(&o.target, Target::Pass(p, _) if *p == pass))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.out.push(Output::Cancel(id));
            self.forget_call(id);
        }
    }

    /// Whether something is on its way that a pass changes. It is waited for as long as it may take: the lease is not given
    /// up before, because whoever holds it next takes for granted that nothing of the last holder comes after it.
    pub(super) fn has_effect_in_flight(&self, pass: PassId) -> bool {
        let mut calls = self.calls.values();
        calls.any(|call| match &call.target {
            Target::Pass(id, purpose) => *id == pass && purpose.changes_something(),
            _ => false,
        })
    }
}

/// The reply of a call that was cut.
fn cut(target: &Target) -> Reply {
    let failure = Failure::new(Code::DeadlineExceeded, "no answer in time");
    match target {
        Target::Pass(_, Purpose::Settle(_)) => Reply::Settled(Doubt::Unknown),
        Target::Pass(_, Purpose::Answer { act: false, .. } | Purpose::Reread) => Reply::Answer(Err(failure)),
        Target::Lease { .. } => Reply::Lease(Err(failure)),
        _ => Reply::Answer(Err(failure.effect_unknown())),
    }
}
