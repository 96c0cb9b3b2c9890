//! Rules about one pass: the policies that it may use, the principal as which it may act, and whether its recording is
//! complete.

use std::collections::BTreeMap;
use std::time::Duration;

use polity_core::binding::{Binding, Limits, PolicyId};
use polity_core::call::Session;
use polity_core::contract::{Json, Pass, Role, Step, Verdict as Judged, Wait};
use polity_core::record::{PassRecord, RoleRecord};
use polity_core::time::Boot;

use super::{Oracle, Rule, Seen, Verdict, ensure};
use crate::simulation::stepper::Stepper;

/// A binding as a process had it for some time.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// Boot milliseconds.
    from: Boot,
    until: Boot,
    /// Digest and configuration, by role.
    pub(super) policies: BTreeMap<Role, (PolicyId, Json)>,
}

impl Form {
    fn at(&self, boot: Boot) -> bool {
        self.from <= boot && boot <= self.until
    }
}

impl Seen {
    /// The form of a binding at a time; of two at one instant, the later.
    pub(super) fn form(&self, binding: &str, boot: Boot) -> Option<&Form> {
        self.bound.get(binding)?.iter().rev().find(|form| form.at(boot))
    }
}

impl Oracle {
    /// A process is told of a binding, or that it is gone.
    pub fn binds(&mut self, boot: Boot, host: &str, name: &str, binding: Option<&Binding>) {
        let seen = self.hosts.entry(host.to_owned()).or_default();
        seen.disturbed = boot;
        let forms = seen.bound.entry(name.to_owned()).or_default();
        let old = forms.last_mut().filter(|form| form.until == Boot::MAX);
        let old = old.map(|form| {
            form.until = boot;
            form.policies.clone()
        });
        seen.faults.retain(|key, _| *key.binding != *name);
        let Some(binding) = binding else {
            seen.last.retain(|key, _| *key.binding != *name);
            if !seen.open.is_empty() {
                self.reached
                    .insert("a binding was gone while passes were under way");
            }
            return;
        };
        let policies = binding
            .policies
            .iter()
            .map(|(role, policy)| (*role, (policy.id.clone(), policy.config.clone())));
        let form = Form {
            from: boot,
            until: Boot::MAX,
            policies: policies.collect(),
        };
        let retry = form.policies.get(&Role::Retry).cloned();
        let swapped = old.is_some_and(|old| old.get(&Role::Retry) != retry.as_ref());
        forms.push(form);
        if let (true, Some((policy, config))) = (swapped, retry) {
            self.reached.insert("a retry policy was swapped");
            seen.swapped(name, &policy, &config, boot);
        }
    }

    /// A process is answered a credential for a pass of this object.
    pub fn issues(&mut self, host: &str, uid: &str, handle: &str) {
        let seen = self.hosts.entry(host.to_owned()).or_default();
        if let Some(open) = seen.open.get_mut(uid) {
            open.handles.insert(handle.to_owned());
        }
    }

    /// A process calls a cloud for an object whose identity a policy decides on.
    pub fn calls_as(&self, host: &str, session: &Session) -> Verdict {
        let open = self
            .hosts
            .get(host)
            .and_then(|seen| seen.open.get(&session.owner));
        let named = match (&session.handle, open) {
            (Some(handle), Some(open)) => open.handles.contains(handle),
            _ => false,
        };
        ensure(named, Rule::Identity, || {
            format!("{host} calls the cloud as {session:?}, which nobody answered in this pass")
        })
    }

    /// Every role of a pass is one of the binding as it was when the pass started.
    pub(super) fn is_of_one_binding(&self, host: &str, record: &PassRecord) -> Verdict {
        let forms = self
            .hosts
            .get(host)
            .and_then(|seen| seen.bound.get(&*record.key.binding));
        let mut forms = forms
            .into_iter()
            .flatten()
            .filter(|form| form.at(record.started.boot));
        let fits = |form: &Form, role: &RoleRecord| {
            form.policies.get(&role.role) == Some(&(role.policy.clone(), role.config.clone()))
        };
        let one = forms.any(|form| record.roles.iter().all(|role| fits(form, role)));
        ensure(one, Rule::OneBinding, || {
            let roles = record.roles.iter().map(|role| (&role.policy, &role.config));
            format!("{} of {host} used {:?}", record.key, roles.collect::<Vec<_>>())
        })
    }

    /// What a recording holds gives the same conclusions again, without its causes too.
    pub fn replays(&self, stepper: &dyn Stepper, record: &PassRecord) -> Verdict {
        for role in record.roles.iter().filter(|role| role.conclusion.is_some()) {
            let said = replay(stepper, record, role);
            let same = matches!(&said, Ok(Step::Concluded { verdict, conclusion })
                if *verdict == role.verdict && Some(conclusion) == role.conclusion.as_ref());
            ensure(same, Rule::Replay, || {
                format!(
                    "{} concluded {:?}, and replays to {said:?}",
                    record.key, role.conclusion
                )
            })?;
        }
        let Some(retry) = &record.retry else {
            return Ok(());
        };
        let said = stepper.decide(&retry.policy, &retry.request, &Limits::default());
        ensure(said.as_ref().ok() == retry.answer.as_ref(), Rule::Replay, || {
            format!("{} waits {:?}, and replays to {said:?}", record.key, retry.answer)
        })?;
        let limits = Limits::default();
        let heeded = |said: Wait| {
            let (Wait::After(said) | Wait::OnChange(Some(said))) = said else {
                return Some(limits.longest_wait);
            };
            let said = Duration::from_millis(said);
            Some(said.clamp(limits.shortest_wait, limits.longest_wait))
        };
        let forgotten = record.wait.is_none();
        ensure(
            forgotten || retry.answer.is_none_or(|said| record.wait == heeded(said)),
            Rule::Replay,
            || {
                format!(
                    "{} was told to wait {:?} and waits {:?}",
                    record.key, retry.answer, record.wait
                )
            },
        )
    }
}

/// The last step of a role, from what was recorded of its pass.
fn replay(
    stepper: &dyn Stepper,
    record: &PassRecord,
    role: &RoleRecord,
) -> Result<Step, polity_core::fault::Fault> {
    let pass = Pass {
        object: record.object.clone(),
        now: record.started.unix.0,
        causes: Vec::new(),
        attempt: record.attempt,
        config: role.config.clone(),
        pending: role.pending.clone(),
        journal: role.journal.clone(),
    };
    stepper.step(&role.policy, &pass, &Limits::default()).outcome
}

/// A pass whose identity was denied does nothing in a cloud.
pub(super) fn denied_acts_not(record: &PassRecord, acts: &[(String, String)]) -> Verdict {
    let denied = record
        .roles
        .iter()
        .any(|role| role.verdict == Some(Judged::Denied));
    ensure(!denied || acts.is_empty(), Rule::Identity, || {
        format!("{} was denied and did {acts:?}", record.key)
    })
}
