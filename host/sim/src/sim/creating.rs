//! Before a create, and after a create whose answer was lost.

use std::time::Duration;

use polity_core::call::{PendingEntry, Preparation, Session, Site};
use polity_core::catalogue::OperationEffect;
use polity_core::contract::{Failure, Resolution};
use polity_core::time::Unix;
use serde_json::Value;

use super::Sim;
use crate::config::scenario::RESOLVE;
use crate::guards::Guard;
use crate::hypervisor::create::Trace;
use crate::hypervisor::work::answer;
use crate::kernel::call::Caller;
use crate::kernel::envelope::LONGEST;
use crate::kernel::faults::Subject;

impl Sim {
    /// The place of this cloud, and the principal of this session. One account does not see what another has
    /// created.
    pub fn site(&mut self, now_ms: u64, session: &Session) -> Result<Site, Failure> {
        let now = self.advance(now_ms);
        let caller = self.caller(now, session)?;
        Ok(Site {
            place: vec!["sim".to_owned()],
            principal: caller.account.unwrap_or_else(|| "host".to_owned()),
        })
    }

    /// Prepares a create. It only needs to know who creates. `None` if the cloud does not answer.
    pub fn prepare(&mut self, now_ms: u64, session: &Session) -> Option<Result<Preparation, Failure>> {
        let now = self.advance(now_ms);
        if let Some(unreachable) = self.kernel.unreachable(now) {
            return unreachable.map(Err);
        }
        let site = self.site(now, session);
        Some(site.map(|site| Preparation {
            site,
            ready: "{}".into(),
        }))
    }

    /// Looks for the result of a create: `done` with its task, or with its VM if the task's record has
    /// expired. For a machine or a router it is the answer that the create got or would have got.
    ///
    /// Without client tokens a create is recognised by its properties: a clone of this name, stamped with
    /// this owner and submitted since the entry was written. `absent` needs a successful look later than
    /// `since` plus `visible-within`, when neither lag nor a late effect can hide the result. In every other
    /// case the answer is `unknown`. A clone that failed counts as done: its task shows the failure.
    pub fn resolve(&mut self, now_ms: u64, session: &Session, entry: &PendingEntry) -> Resolution {
        let now = self.advance(now_ms);
        let subject = Subject {
            operation: RESOLVE,
            owner: &session.owner,
            tenant: &session.tenant,
            about: Some(&entry.intent),
        };
        let blind = self.kernel.unreachable(now).is_some() || self.kernel.fault(now, &subject).is_some();
        let caller = Some(())
            .filter(|()| !blind)
            .and_then(|()| self.caller(now, session).ok());
        let Some(visible_within) = self.visible_within(&entry.operation) else {
            let why = format!("this cloud has no operation {}", entry.operation);
            return Resolution::Unknown(why);
        };
        let late = Unix(now) > entry.since + visible_within;
        let Some(caller) = caller else {
            return if late && !self.guards.stand(Guard::AbsentTakesALook) {
                Resolution::Absent
            } else {
                Resolution::unknown("the cloud cannot be reached")
            };
        };
        match self.trace(now, &caller, entry) {
            Some(answer) => Resolution::Done(answer.to_string().into()),
            None if late => Resolution::Absent,
            None => Resolution::unknown("the created thing may not be visible yet"),
        }
    }

    fn trace(&mut self, now: u64, caller: &Caller, entry: &PendingEntry) -> Option<Value> {
        let client_tokens = self.kernel.settings().client_tokens;
        let trace = Trace {
            operation: &entry.operation,
            intent: &entry.intent,
            key: Some(entry.key.as_str()).filter(|_| client_tokens),
            since: if client_tokens { 0 } else { entry.since.0 },
            seen: self.kernel.look(now, &caller.owner),
        };
        let mut tasks: Vec<_> = self.kernel.tasks_of(&caller.owner).collect();
        tasks.retain(|task| {
            task.operation == trace.operation
                && caller.sees(&task.stamp)
                && (trace.since..=trace.seen).contains(&task.submitted)
                && trace.is(&task.name, task.stamp.key.as_deref())
        });
        // Prefer a task that did not fail.
        if let Some(task) = tasks.iter().min_by_key(|task| (task.has_failed(), task.number)) {
            return Some(answer(task.number));
        }
        let vm = self.vms.trace(caller, &trace)?;
        let service = &self.services[*self.routes.get(trace.operation)?];
        service.shows(vm, now).then(|| service.created(&self.vms, vm))
    }

    /// How long a create may stay invisible; `None` if the operation is no create of this cloud.
    fn visible_within(&self, operation: &str) -> Option<Duration> {
        let operation = self.catalogue().operations.get(operation)?;
        (operation.effect == OperationEffect::Create).then_some(operation.visible_within)
    }

    /// How long a look takes.
    pub(crate) fn resolving(&mut self, now: u64, session: &Session) -> u64 {
        match self.kernel.unreachable(now) {
            Some(None) => LONGEST,
            _ => self.kernel.answer_time(&session.owner).min(LONGEST),
        }
    }
}
