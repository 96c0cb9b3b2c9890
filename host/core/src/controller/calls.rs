//! Calls are sent, come back, and are cut.

use std::sync::Arc;
use std::time::Duration;

use super::{Controller, Guard, Output};
use crate::binding::Binding;
use crate::call::{Call, CallId, Reply, Scope};
use crate::contract::{Code, Failure};
use crate::fair::Quota;
use crate::key::PassId;
use crate::reconcile::{CLUSTER_LONGEST, PhaseEvent};
use crate::shared::calls::UnsentCall;
use crate::shared::capacity::{Capacity, capacity_of};
use crate::shared::terms::{NotSent, Receiver};
use crate::time::Boot;

/// What becomes of a call whose turn it is.
enum Admission {
    /// It is sent. No request of it that changes something may begin from this moment on.
    Now(Boot),
    /// It waits for the renewal of the lease.
    AfterRenewal,
    Never(NotSent),
}

impl Controller {
    /// Makes a call as soon as this tenant queue may. The reply goes to the receiver. If none comes within the longest time after
    /// the call was sent, the receiver gets a cut or a failure instead.
    pub(super) fn call(
        &mut self,
        receiver: Receiver,
        (tenant_queue, binding): (&Arc<str>, &Binding),
        unsent: UnsentCall,
    ) {
        let unsent = Box::new(unsent);
        match capacity_of(&unsent.call, &binding.name) {
            Some(capacity) => self.wait(receiver, (tenant_queue, binding), capacity, Some(unsent)),
            None => {
                let id = self.shared.calls.insert(receiver);
                self.send(id, unsent, Boot::MAX, Some(tenant_queue.clone()));
            }
        }
    }

    /// Makes a pass wait until it may hold texts of any size. It is told with [`PhaseEvent::Grown`].
    pub(super) fn grow(&mut self, pass: PassId, tenant_queue: &Arc<str>, binding: &Binding) {
        let receiver = Receiver::Pass(pass, 0);
        self.wait(receiver, (tenant_queue, binding), Capacity::Large, None);
    }

    fn wait(
        &mut self,
        receiver: Receiver,
        (tenant_queue, binding): (&Arc<str>, &Binding),
        capacity: Capacity,
        unsent: Option<Box<UnsentCall>>,
    ) {
        let places = if self.shared.guards.stand(Guard::CapacitiesAreBounded) {
            self.shared.capacities.places(&capacity, binding)
        } else {
            Quota::UNBOUNDED
        };
        let calls = &mut self.shared.calls;
        calls.wait(receiver, (capacity.clone(), places), tenant_queue, unsent);
        self.admit(&capacity);
    }

    /// Gives the free places of a capacity to those who wait. Changes are looked at here for the last time: they may have waited
    /// long.
    fn admit(&mut self, capacity: &Capacity) {
        while let Some((id, receiver, unsent)) = self.shared.calls.next(capacity) {
            let Receiver::Pass(pass, _) = receiver else {
                // Keys read only.
                if let Some(unsent) = unsent {
                    self.send(id, unsent, Boot::MAX, None);
                }
                continue;
            };
            let Some(unsent) = unsent else {
                self.passes.grown.push_back(pass);
                continue;
            };
            match self.turn_of(&unsent) {
                Admission::Now(begin_by) => self.send(id, unsent, begin_by, None),
                Admission::AfterRenewal => self.shared.calls.await_renewal(id, unsent),
                Admission::Never(why) => {
                    self.shared.calls.remove(id);
                    self.passes.not_sent.push_back((pass, why));
                }
            }
        }
    }

    /// Whether a call may be sent now. A change must end while this host holds the lease, because another host may act
    /// after it.
    fn turn_of(&self, unsent: &UnsentCall) -> Admission {
        let (shared, now) = (&self.shared, self.shared.now);
        let Some(terms) = &unsent.terms else {
            return Admission::Now(Boot::MAX);
        };
        if shared.cutting {
            return Admission::Never(NotSent::Cut);
        }
        let longest = unsent.longest.unwrap_or_default();
        let covered = match shared.lease.begin_by(now, longest) {
            None if !shared.guards.stand(Guard::Fencing) => Boot::MAX,
            None if shared.lease.is_held(now) => return Admission::AfterRenewal,
            None => return Admission::Never(NotSent::LeaseLost),
            Some(covered) => covered,
        };
        let first = terms.first.as_ref();
        if first.is_some_and(|primary| !primary.is_so(&shared.cache)) {
            return Admission::Never(NotSent::PrimaryChanged);
        }
        if !shared.guards.stand(Guard::ChangesBeginInTime) {
            return Admission::Now(Boot::MAX);
        }
        match covered.min(terms.begin_by) {
            begin_by if begin_by > now.boot => Admission::Now(begin_by),
            _ => Admission::Never(NotSent::Late),
        }
    }

    /// The lease was renewed: the changes that waited for it come first.
    pub(super) fn admit_uncovered(&mut self) {
        for capacity in self.shared.calls.renewed() {
            self.admit(&capacity);
        }
    }

    /// Sends a call of the lease.
    pub(super) fn send_lease(&mut self, call: Call, longest: Duration) {
        let wrote = matches!(call, Call::Lease(Some(_)));
        let id = self.shared.calls.insert(Receiver::Lease { wrote });
        let unsent = UnsentCall {
            call,
            longest: Some(longest),
            terms: None,
        };
        self.send(id, unsent.into(), Boot::MAX, None);
    }

    fn send(&mut self, id: CallId, unsent: Box<UnsentCall>, begin_by: Boot, worked_for: Option<Arc<str>>) {
        let UnsentCall { call, longest, terms } = *unsent;
        let deadline = longest.map(|longest| self.shared.now.boot + longest);
        let tenant_queue = self
            .shared
            .calls
            .sent(id, deadline, terms.is_some())
            .or(worked_for);
        let pass = self.shared.calls.pass_of(id);
        self.out.push(Output::Call {
            id,
            call,
            tenant_queue,
            pass,
            begin_by,
        });
    }

    /// Makes a question of a pass wait for the first list of a watch. No call is sent: the controller itself answers
    /// with [`Controller::on_listed`].
    pub(super) fn await_list(&mut self, pass: PassId, slot: usize, scope: Scope) {
        let deadline = self.shared.now.boot + CLUSTER_LONGEST;
        let receiver = Receiver::Pass(pass, slot);
        self.shared.calls.await_list(receiver, scope, deadline);
    }

    /// Removes a call that ended and gives its place to the next one. Returns the receiver of the reply.
    fn forget_call(&mut self, id: CallId) -> Option<Receiver> {
        let (receiver, freed) = self.shared.calls.remove(id)?;
        if let Some(capacity) = freed {
            self.admit(&capacity);
        }
        Some(receiver)
    }

    /// Hands a reply to its receiver. A reply to a call that was cancelled is dropped.
    pub(super) fn on_returned(&mut self, id: CallId, reply: Reply) {
        match self.forget_call(id) {
            None => {}
            Some(Receiver::Pass(pass, slot)) => self.on_event(pass, PhaseEvent::Reply(slot, reply)),
            Some(Receiver::Reschedule(asked)) => self.on_rescheduled(&asked, reply),
            Some(Receiver::Refresh(asked)) => self.on_refreshed(&asked, Some(reply)),
            Some(Receiver::Lease { wrote }) => {
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
        for id in self.shared.calls.awaiting_list(scope) {
            if let Some(Receiver::Pass(pass, slot)) = self.forget_call(id) {
                self.on_event(pass, PhaseEvent::Listed(slot));
            }
        }
    }

    /// Cuts the calls whose deadline has passed. A cut write may have been performed or not, so the pass treats its
    /// result as unknown.
    pub(super) fn expire_calls(&mut self) {
        while let Some(id) = self.shared.calls.overdue(self.shared.now.boot) {
            self.out.push(Output::Cancel(id));
            match self.forget_call(id) {
                // A worker always answers.
                None | Some(Receiver::Reschedule(_)) => {}
                Some(Receiver::Pass(pass, slot)) => self.on_event(pass, PhaseEvent::Cut(slot)),
                Some(Receiver::Refresh(asked)) => self.on_refreshed(&asked, None),
                Some(Receiver::Lease { .. }) => {
                    let failure = Failure::new(Code::DeadlineExceeded, "no answer in time");
                    self.shared.lease.answered(self.shared.now, false, Err(failure));
                }
            }
        }
    }

    /// Cancels every call that a pass still waits for, and gives back what it holds.
    pub(super) fn cancel_calls(&mut self, pass: PassId) {
        self.passes.not_sent.retain(|(of, ..)| *of != pass);
        for (id, is_sent) in self.shared.calls.of_pass(pass).collect::<Vec<_>>() {
            if is_sent {
                self.out.push(Output::Cancel(id));
            }
            self.forget_call(id);
        }
    }
}
