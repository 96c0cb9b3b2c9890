//! The way of a call to the service that performs it, and of the answer back.

use polity_clouds::catalogue;
use polity_core::call::CloudRequest;
use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Kernel;
use super::call::{Plan, TaskError, text};
use super::due::{DelayedCall, Due};
use super::faults::{Fault, Subject};

/// Milliseconds after which a call is cut.
pub const LONGEST: u64 = catalogue::LONGEST.as_millis() as u64;

/// The answer to a call, and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The milliseconds until the answer arrives. For a lost answer, until the call is cut.
    pub after_ms: u64,
    /// The answer; `None` if it is lost. The caller then sees [`lost`].
    pub answer: Option<Answer>,
}

impl Reply {
    /// A lost answer: the call is cut at its longest duration.
    const LOST: Reply = Reply {
        after_ms: LONGEST,
        answer: None,
    };
}

/// The failure of a call whose answer was lost, `deadline-exceeded`. If it was a `read`, nothing has changed.
pub fn lost(operation: &str, read: bool) -> Failure {
    let failure = Failure::new(
        Code::DeadlineExceeded,
        format!("{operation}: no answer within {LONGEST} ms"),
    );
    if read { failure } else { failure.effect_unknown() }
}

/// How a call continues after it was sent.
pub(crate) enum Admission<Q> {
    /// It is performed with this plan, and its answer is delivered in this way.
    Performed(Plan<Q>, Delivery),
    /// It is answered without being performed, or is performed later.
    Answered(Reply),
}

/// How the answer is delivered.
pub(crate) enum Delivery {
    /// Unchanged, after its time.
    Plain,
    Lost,
    After(u64),
    /// As a failure, although the call succeeded.
    SaidToFail(Code),
    /// Replaced by this answer.
    Replaced(Value),
    /// With another `state`.
    InState(String),
}

impl<E, Q: Clone> Kernel<E, Q> {
    /// Passes a call to its service, or answers it.
    pub(crate) fn admit(&mut self, now: u64, request: &CloudRequest, about: Option<&str>) -> Admission<Q> {
        if let Some(unreachable) = self.unreachable(now) {
            return Admission::Answered(match unreachable {
                Some(failure) => self.deliver(request, Err(failure), Delivery::Plain),
                None => Reply::LOST,
            });
        }
        let subject = Subject {
            operation: &request.operation,
            owner: &request.session.owner,
            tenant: &request.session.tenant,
            about,
        };
        match self.fault(now, &subject) {
            None => Admission::Performed(Plan::default(), Delivery::Plain),
            Some(fault) => self.admit_with(now, request, fault),
        }
    }

    fn admit_with(&mut self, now: u64, request: &CloudRequest, fault: Fault<Q>) -> Admission<Q> {
        let planned = |plan| Admission::Performed(plan, Delivery::Plain);
        let delivered = |delivery| Admission::Performed(Plan::default(), delivery);
        match fault {
            Fault::Fail {
                code,
                message,
                retry_after,
            } => {
                let failure = Failure {
                    retry_after,
                    ..Failure::new(code, self.quote(message, request))
                };
                Admission::Answered(self.deliver(request, Err(failure), Delivery::Plain))
            }
            Fault::LoseRequest => Admission::Answered(Reply::LOST),
            Fault::HappenLate(by) => {
                let late = self.delayed(request);
                self.enter(now + by, Due::Arrive(Box::new(late)));
                self.dirty = true;
                Admission::Answered(Reply::LOST)
            }
            Fault::LoseAnswer => delivered(Delivery::Lost),
            Fault::AnswerAfter(after) => delivered(Delivery::After(after)),
            Fault::FailAfterwards(code) => delivered(Delivery::SaidToFail(code)),
            Fault::AnswerWith(answer) => delivered(Delivery::Replaced(answer)),
            Fault::TaskState(state) => delivered(Delivery::InState(state)),
            Fault::FailTask { fault, message } => {
                let message = message.unwrap_or_else(|| format!("{fault} (by the scenario)"));
                planned(Plan {
                    doomed: Some(TaskError::new(&fault, message)),
                    ..Plan::default()
                })
            }
            Fault::TaskTakes(takes) => planned(Plan {
                takes: Some(takes),
                ..Plan::default()
            }),
            Fault::Quirk(quirk) => planned(Plan {
                quirk: Some(quirk),
                ..Plan::default()
            }),
        }
    }

    /// Delivers an answer.
    pub(crate) fn deliver(&mut self, request: &CloudRequest, answer: Answer, delivery: Delivery) -> Reply {
        let answer = match delivery {
            Delivery::Plain => answer,
            Delivery::Lost => return Reply::LOST,
            Delivery::After(after_ms) if after_ms < LONGEST => {
                return Reply {
                    after_ms,
                    answer: Some(answer),
                };
            }
            Delivery::After(_) => return Reply::LOST,
            Delivery::SaidToFail(code) => Err(Failure::new(code, self.quote(None, request)).effect_unknown()),
            Delivery::Replaced(other) => answer.map(|_| other),
            Delivery::InState(state) => answer.map(|mut answer| {
                answer["state"] = state.into();
                answer
            }),
        };
        let after_ms = self.answer_time(&request.session.owner);
        if after_ms < LONGEST {
            Reply {
                after_ms,
                answer: Some(answer),
            }
        } else {
            Reply::LOST
        }
    }

    /// How long the owner's next answer takes.
    pub(crate) fn answer_time(&mut self, owner: &str) -> u64 {
        let draw = self.draw_for(owner);
        self.settings.answers.pick(draw)
    }

    /// The message of a failure, with the values that a careless service would repeat.
    fn quote(&self, message: Option<String>, request: &CloudRequest) -> String {
        let message = message.unwrap_or_else(|| format!("{} failed (by the scenario)", request.operation));
        let sealed = self.settings.sealed.iter();
        let sealed = sealed.map(|name| (name.as_str(), text(&request.arguments, name)));
        let session = request.session.handle.as_deref().unwrap_or_default();
        repeat(message, sealed.chain([("session", session)]))
    }

    fn delayed(&self, request: &CloudRequest) -> DelayedCall {
        let CloudRequest {
            session,
            operation,
            mut arguments,
            key,
        } = request.clone();
        for (name, value) in arguments.as_object_mut().into_iter().flatten() {
            if self.settings.sealed.contains(name) {
                *value = self.conceal(value);
            }
        }
        DelayedCall {
            session,
            operation,
            arguments,
            key,
        }
    }

    /// What is stored in place of a secret.
    pub(crate) fn conceal(&self, secret: &Value) -> Value {
        json!({DIGEST: self.digest(secret)})
    }

    /// The digest of a secret, whether it is concealed or not. It recognises the secret later.
    pub(crate) fn digest(&self, secret: &Value) -> String {
        if let Some(digest) = secret.get(DIGEST).and_then(Value::as_str) {
            return digest.to_owned();
        }
        let digest = Sha256::new_with_prefix(self.head.seed.to_le_bytes()).chain_update(secret.to_string());
        let digest = digest.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The field that marks a concealed secret. No argument that follows a schema of the catalogue has it.
const DIGEST: &str = "$digest";

/// A text in which each `{name}` is replaced by its value.
pub(crate) fn repeat<'a>(message: String, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    values.into_iter().fold(message, |message, (name, value)| {
        message.replace(&format!("{{{name}}}"), value)
    })
}
