//! Deciding: the retry policy is asked how long to wait.

use super::publishing::Ended;
use super::{Context, Flow, Phase, PhaseEvent, Report, STEP_LONGEST};
use crate::binding::Limits;
use crate::call::{Call, Reply};
use crate::contract::{Code, Failure, Next, RetryClass, Role, Trial};
use crate::fault::{Fault, FaultKind};
use crate::record::{Outcome, RetryRecord};
use crate::retry::{default_wait, seed};

/// The retry policy of a pass that has ended.
#[derive(Debug)]
pub(crate) struct Deciding {
    ended: Ended,
    trial: Trial,
}

/// A pass that has ended, and how long its key waits.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) ended: Ended,
    /// Milliseconds, and what the retry policy was asked or would have been; none where nobody retries.
    pub(crate) waited: Option<(u64, Trial)>,
    /// What the retry policy said, where it was asked.
    pub(crate) retry: Option<RetryRecord>,
}

impl Finished {
    /// Nobody retries.
    pub(crate) fn plain(outcome: Outcome) -> Self {
        Finished {
            ended: Ended::plain(outcome),
            waited: None,
            retry: None,
        }
    }
}

impl Ended {
    /// Asks the retry policy, where the pass is to be tried again and the binding names one.
    pub(crate) fn decide(self, context: &mut Context<'_>) -> Flow {
        let (class, failure) = match (&self.outcome, &self.next) {
            (
                Outcome::Published | Outcome::Denied | Outcome::Released,
                Some(Next::Retry { class, failure }),
            ) => (*class, failure.clone()),
            (Outcome::Discarded(_), _) => (RetryClass::Conflict, None),
            (Outcome::Failed(failure), _) => (RetryClass::Short, Some(failure.clone())),
            (Outcome::Bug(what), _) => (
                RetryClass::Short,
                Some(Failure::new(Code::Internal, what.clone())),
            ),
            _ => {
                return Flow::Finish(Finished {
                    ended: self,
                    waited: None,
                    retry: None,
                });
            }
        };
        let trial = trial(class, failure.as_ref(), context);
        let phase = Deciding { ended: self, trial };
        // A defect of the host is no business of a policy.
        let is_bug = matches!(phase.ended.outcome, Outcome::Bug(_));
        match context.frame.binding.policy(Role::Retry) {
            Some(_) if !context.view.cutting && !is_bug => Flow::Enter(Phase::Deciding(phase)),
            _ => Flow::Finish(phase.interrupt()),
        }
    }
}

impl Deciding {
    pub(super) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        match event {
            PhaseEvent::Entered => {
                let Some(policy) = context.frame.binding.policy(Role::Retry) else {
                    return Flow::Finish(self.interrupt());
                };
                let call = Call::Decide {
                    policy: policy.id.clone(),
                    trial: self.trial.clone(),
                    limits: context.frame.binding.spec.limits.clone(),
                };
                context.call(0, call, STEP_LONGEST);
                Flow::Wait(Phase::Deciding(self))
            }
            PhaseEvent::Reply(_, reply @ Reply::Decided(_)) => self.decided(answer_of(Some(reply)), context),
            PhaseEvent::Cut(_) => self.decided(answer_of(None), context),
            event => Flow::unexpected(&Phase::Deciding(self), &event),
        }
    }

    /// Without what the retry policy would have said.
    pub(super) fn interrupt(self) -> Finished {
        Finished {
            ended: self.ended,
            waited: Some((default_wait(&self.trial), self.trial)),
            retry: None,
        }
    }

    fn decided(self, answer: Result<u64, Fault>, context: &mut Context<'_>) -> Flow {
        let Deciding { ended, trial } = self;
        let binding = &context.frame.binding;
        let retry = binding.policy(Role::Retry).map(|policy| RetryRecord {
            policy: policy.id.clone(),
            trial: trial.clone(),
            answer: answer.as_ref().ok().copied(),
            fault: answer.as_ref().err().cloned(),
        });
        let (wait, wrong) = taken(answer, &binding.spec.limits, &trial);
        if let Some(wrong) = wrong {
            context.report(wrong);
        }
        let waited = Some((wait, trial));
        Flow::Finish(Finished { ended, waited, retry })
    }
}

fn trial(class: RetryClass, failure: Option<&Failure>, context: &Context<'_>) -> Trial {
    let frame = context.frame;
    let attempt = failure.map_or(0, |_| frame.attempt);
    let since = frame.last.failing_since.filter(|_| failure.is_some());
    let policy = frame.binding.policy(Role::Retry);
    Trial {
        class,
        code: failure.map(|f| f.code),
        attempt,
        since: since.map_or(0, |since| context.view.now.boot.saturating_sub(since)),
        retry_after: failure.and_then(|f| f.retry_after),
        seed: seed(frame.uid(), attempt),
        config: policy.map_or_else(|| "null".into(), |p| p.config.clone()),
    }
}

/// What came back from a retry policy; none is nothing.
pub(crate) fn answer_of(reply: Option<Reply>) -> Result<u64, Fault> {
    match reply {
        Some(Reply::Decided(said)) => said,
        _ => Err(Fault {
            kind: FaultKind::WallTime,
            message: "the retry policy did not return".into(),
            deterministic: false,
        }),
    }
}

/// How long a key waits after what its retry policy said, and what is said of the binding if it was not taken as it was.
pub(crate) fn taken(said: Result<u64, Fault>, limits: &Limits, trial: &Trial) -> (u64, Option<Report>) {
    let (wait, report) = match said {
        Ok(said) => {
            let (wait, wrong) = bounded(said, limits, trial);
            (wait, wrong.map(Report::Clamped))
        }
        Err(fault) => (default_wait(trial), Some(Report::Faulted(fault))),
    };
    (wait.max(trial.retry_after.unwrap_or(0)), report)
}

/// What a retry policy said as it is taken, and what is wrong with it if that is something else: a number that is
/// negative where it was made says nothing at all, any other one is held within the limits of the binding.
fn bounded(said: u64, limits: &Limits, trial: &Trial) -> (u64, Option<String>) {
    let (shortest, longest) = (limits.shortest_wait, limits.longest_wait);
    let signed = said.cast_signed();
    if signed < 0 {
        let wait = default_wait(trial);
        let wrong =
            format!("the retry policy said {signed} ms; the host waits {wait} ms as it does without one");
        return (wait, Some(wrong));
    }
    let (wait, limit) = match said {
        said if said < shortest => (shortest, "shortestWait"),
        said if said > longest => (longest, "longestWait"),
        said => return (said, None),
    };
    let wrong = format!("the retry policy said {said} ms; spec.limits.{limit} is {wait} ms");
    (wait, Some(wrong))
}
