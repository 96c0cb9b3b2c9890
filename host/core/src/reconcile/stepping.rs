//! Stepping: a policy is called, again and again until it concludes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::acting::Acting;
use super::asking::{Asking, answer_from_watch};
use super::publishing::{Ended, Publishing};
use super::resolving::Resolving;
use super::role::RoleRun;
use super::{Context, Flow, Phase, PhaseEvent, Report, STEP_LONGEST};
use crate::call::{Call, Reply};
use crate::contract::{Ask, Conclusion, Pass, Question, Request, Role, Step, Verdict};
use crate::fault::{Fault, FaultKind, Stepped};
use crate::object::Object;
use crate::record::{Discard, Outcome};

/// One call into the policy of a role.
#[derive(Debug)]
pub(crate) struct Stepping {
    run: RoleRun,
}

impl Stepping {
    /// Begins the steps of a role.
    pub(super) fn begin(role: Role) -> Phase {
        Phase::Stepping(Stepping {
            run: RoleRun::new(role),
        })
    }

    /// The next step of a role whose requests are answered.
    pub(super) fn again(run: RoleRun) -> Flow {
        Flow::Enter(Phase::Stepping(Stepping { run }))
    }

    pub(super) fn on_event(mut self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        match event {
            PhaseEvent::Entered => {
                if context.frame.binding.policy(self.run.role).is_none() {
                    return without_lifecycle(context);
                }
                if self.run.steps == 0 {
                    self.prefetch(context);
                }
                self.call(context)
            }
            PhaseEvent::Reply(_, Reply::Stepped(stepped)) => self.stepped(stepped, context),
            PhaseEvent::Cut(_) => {
                let fault = Fault {
                    kind: FaultKind::WallTime,
                    message: "the step did not return".into(),
                    deterministic: false,
                };
                self.fault(fault, context)
            }
            event => Flow::unexpected(&Phase::Stepping(self), &event),
        }
    }

    /// What the last pass used is in the journal from the start, where a watch knows it: most passes then take one step.
    fn prefetch(&mut self, context: &mut Context<'_>) {
        if self.run.role == Role::Lifecycle {
            self.run.pending = RoleRun::in_doubt(context.work);
        }
        if !context.view.guards.prefetch {
            return;
        }
        let used = context.frame.last.used.clone();
        let limit = context.frame.binding.spec.limits.answer;
        for ((role, question), _) in used.iter() {
            if *role == self.run.role
                && !is_latest(question)
                && let Some(answer) = answer_from_watch(self.run.role, question, context)
            {
                let question = question.clone();
                let request = Request::Ask(Ask { round: 0, question });
                self.run.append(request, answer, limit);
            }
        }
    }

    fn call(mut self, context: &mut Context<'_>) -> Flow {
        let frame = context.frame;
        let limits = &frame.binding.spec.limits;
        self.run.steps += 1;
        if self.run.steps > limits.steps || self.run.journal.len() > limits.entries as usize {
            let message = format!(
                "more than {} steps or {} journal entries",
                limits.steps, limits.entries
            );
            return self.fault(Fault::new(FaultKind::TooLong, message), context);
        }
        let Some(policy) = frame.binding.policy(self.run.role) else {
            return without_lifecycle(context);
        };
        let call = Call::Step {
            policy: policy.id.clone(),
            role: self.run.role,
            pass: Arc::new(Pass {
                object: frame.snapshot.as_ref().map(Object::json),
                now: frame.started.unix,
                causes: frame.causes.clone(),
                attempt: frame.attempt,
                config: policy.config.clone(),
                pending: self.run.pending.clone(),
                journal: self.run.journal.clone(),
            }),
            limits: limits.clone(),
        };
        context.call(0, call, STEP_LONGEST);
        Flow::Wait(Phase::Stepping(self))
    }

    fn stepped(mut self, stepped: Stepped, context: &mut Context<'_>) -> Flow {
        self.run.fuel = self.run.fuel.saturating_add(stepped.fuel);
        let limit = context.frame.binding.spec.limits.pass_fuel;
        let before = context.work.roles.iter().map(|role| role.fuel);
        if before.fold(self.run.fuel, u64::saturating_add) > limit {
            let message = format!("the pass used more than {limit} units of fuel");
            return self.fault(Fault::new(FaultKind::OutOfFuel, message), context);
        }
        match stepped.outcome {
            Err(fault) => self.fault(fault, context),
            Ok(Step::Pending(requests)) => self.pending(requests, context),
            Ok(Step::Concluded { verdict, conclusion }) => self.concluded(verdict, conclusion, context),
        }
    }

    fn pending(self, requests: Vec<Request>, context: &mut Context<'_>) -> Flow {
        if let Err(fault) = self.acceptable(&requests, context) {
            return self.fault(fault, context);
        }
        let are_asks = requests.iter().any(|request| matches!(request, Request::Ask(_)));
        Flow::Enter(match are_asks {
            true => Phase::Asking(Asking::new(self.run, requests)),
            false => Phase::Acting(Acting::new(self.run, requests)),
        })
    }

    /// Whether the requests of a step keep the contract.
    fn acceptable(&self, requests: &[Request], context: &Context<'_>) -> Result<(), Fault> {
        let limits = &context.frame.binding.spec.limits;
        let asks = requests.iter().filter(|r| matches!(r, Request::Ask(_))).count();
        if requests.is_empty() {
            let message = "it waits, and for nothing";
            return Err(Fault::new(FaultKind::Stalled, message));
        }
        if asks != 0 && asks != requests.len() {
            let message = "asks and acts in one step: acts may be returned only when no ask is missing";
            return Err(Fault::new(FaultKind::BadOutput, message));
        }
        let room = (limits.entries as usize).saturating_sub(self.run.journal.len());
        if requests.len() > room {
            let message = format!(
                "{} requests in one step, and room for {room} in the journal",
                requests.len()
            );
            return Err(Fault::new(FaultKind::TooLong, message));
        }
        let bytes: u64 = requests.iter().map(Request::bytes).sum();
        if self.run.request_bytes.saturating_add(bytes) > limits.journal {
            let message = format!("requests of more than {} bytes in one pass", limits.journal);
            return Err(Fault::new(FaultKind::TooLong, message));
        }
        if asks != 0 && requests.iter().all(|request| self.run.knows(request)) {
            let message = "it asks only for what its journal already holds";
            return Err(Fault::new(FaultKind::Stalled, message));
        }
        Ok(())
    }

    fn concluded(self, verdict: Option<Verdict>, conclusion: Conclusion, context: &mut Context<'_>) -> Flow {
        let concluded = match self.run.checked(context.frame, verdict.as_ref(), conclusion) {
            Ok(concluded) => concluded,
            Err(fault) => return self.fault(fault, context),
        };
        let conclusion = &concluded.conclusion;
        let role = self.run.role;
        let used: BTreeSet<&Question> = conclusion
            .used
            .iter()
            .filter_map(|index| match &self.run.journal.get(*index as usize)?.request {
                Request::Ask(ask) => Some(&ask.question),
                Request::Act(_) => None,
            })
            .collect();
        let dependencies = &mut context.work.dependencies;
        dependencies.retain(|(of, question), _| *of != role || used.contains(question));
        let conclusion = Some(conclusion.clone());
        let record = self.run.record(context.frame, verdict.clone(), conclusion, None);
        context.work.roles.push(record);
        let publish = |outcome, concluded, context: &mut Context<'_>| {
            Flow::Enter(Publishing::conclusion(concluded, outcome, context))
        };
        match verdict {
            None => publish(Outcome::Published, concluded, context),
            Some(Verdict::Released) => publish(Outcome::Released, concluded, context),
            Some(Verdict::Denied) if context.view.guards.a_denial_ends_the_pass => {
                publish(Outcome::Denied, concluded, context)
            }
            verdict => {
                if let Some(Verdict::Granted(handle)) = verdict {
                    context.work.handle = Some(handle);
                }
                context.work.judged = Some(concluded);
                Flow::Enter(Phase::Resolving(Resolving::default()))
            }
        }
    }

    /// Ends the role of a policy that broke its contract.
    fn fault(self, fault: Fault, context: &mut Context<'_>) -> Flow {
        let record = self.run.record(context.frame, None, None, Some(fault.clone()));
        context.work.roles.push(record);
        let message = fault.to_string();
        context.report(Report::Faulted(fault));
        Flow::Enter(Publishing::fault(message, context))
    }
}

fn is_latest(question: &Question) -> bool {
    match question {
        Question::Object(query) => query.latest,
        Question::Objects(query) => query.latest,
        _ => true,
    }
}

/// A binding that has only an identity policy: its conclusion is the pass's.
fn without_lifecycle(context: &mut Context<'_>) -> Flow {
    match context.work.judged.take() {
        Some(concluded) => Flow::Enter(Publishing::conclusion(concluded, Outcome::Published, context)),
        None => Flow::End(Ended::plain(Outcome::Discarded(Discard::NoPolicy))),
    }
}
