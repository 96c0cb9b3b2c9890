//! The exchanges with a cloud in one operation. The host stores them, and can replay them to another driver.
//!
//! They contain no secret: sealed values and credentials never reach a driver, and a driver sees only the parts of a response
//! that its request keeps, after redaction.

use std::fmt;

use polity_core::contract::{Effect, Failure};
use polity_sandbox::driver::{Call, Driver, DriverLimits, Effect as Does, Finding, HttpRequest, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::effect;

/// The most calls of a driver for one operation.
pub(crate) const STEPS: usize = 32;

/// A part of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The operation reads or changes.
    Perform,
    /// The operation reads until a create is ready.
    Prepare,
    /// The operation begins with the request that creates.
    Commit,
    /// The operation looks for what an earlier create has made.
    Resolve,
}

/// How an operation, or a part of one, ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// With an answer.
    Answered(Value),
    /// The request that creates was ready to be sent.
    Ready,
    /// With a finding about an earlier create.
    Found(Finding),
    /// With a failure.
    Failed(Failure),
}

/// One operation of a cloud, or a part of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exchanged {
    /// When the operation ended, in Unix milliseconds.
    pub at: u64,
    /// The connection.
    pub connection: String,
    /// The SHA-256 of the driver, in hexadecimal.
    pub driver: String,
    /// The part.
    pub part: Part,
    /// The call of the driver, with all requests that have a response.
    pub call: Call,
    /// The last request, if it has no response: it creates and was ready to be sent, or its response was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<HttpRequest>,
    /// How it ended.
    pub ended: Ended,
}

/// Stores the exchanges of operations that failed, created, or resolved an entry.
pub trait Keeps: Send + Sync {
    /// Stores the exchanges of one operation.
    fn keep(&self, exchanged: &Exchanged);
}

/// How another driver behaves differently.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// It sends a request that was not sent.
    Sends(String),
    /// It ends in another way.
    Ends(String),
    /// It breaks the contract.
    Breaks(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Sends(request) => write!(f, "sends a request that was not sent: {request}"),
            Difference::Ends(otherwise) => write!(f, "{otherwise}"),
            Difference::Breaks(how) => write!(f, "breaks the contract: {how}"),
        }
    }
}

impl Exchanged {
    /// Replays the responses to a driver. Requests are matched by content, so their order may differ.
    ///
    /// # Errors
    /// How the driver behaves differently from the driver before it.
    pub fn replay(&self, driver: &Driver) -> Result<(), Difference> {
        let mut left = self.call.exchanges.clone();
        let mut call = self.call.clone();
        call.exchanges.clear();
        for _ in 0..STEPS {
            let outcome = driver.step(&call, &DriverLimits::default()).outcome;
            match outcome.map_err(|fault| Difference::Breaks(fault.to_string()))? {
                Outcome::Answered(Ok(text)) => {
                    let answer = serde_json::from_str(&text);
                    let answer =
                        answer.map_err(|e| Difference::Breaks(format!("its answer is no JSON: {e}")))?;
                    return self.compare(&Ended::Answered(answer));
                }
                Outcome::Answered(Err(said)) => {
                    let failure = effect::failure(said, effect::Sent::Nothing);
                    return self.compare(&Ended::Failed(failure));
                }
                Outcome::Resolved(finding) => return self.compare(&Ended::Found(finding)),
                Outcome::Send(requests) if requests.is_empty() => {
                    return Err(Difference::Breaks(
                        "it returned neither a request nor an answer".to_owned(),
                    ));
                }
                Outcome::Send(requests) => {
                    for request in requests {
                        if self.last.as_ref() == Some(&request) {
                            return Ok(());
                        }
                        let Some(at) = left.iter().position(|exchange| exchange.request == request) else {
                            return Err(Difference::Sends(named(&request)));
                        };
                        call.exchanges.push(left.remove(at));
                    }
                }
            }
        }
        Err(Difference::Breaks(format!(
            "it has no answer after {STEPS} steps"
        )))
    }

    fn compare(&self, now: &Ended) -> Result<(), Difference> {
        let is_same = match (&self.ended, now) {
            // The effect is not compared: the host computed it, and a replay cannot.
            (Ended::Failed(before), Ended::Failed(now)) => {
                let known = |failure: &Failure| Failure {
                    effect: Effect::None,
                    operation: None,
                    ..failure.clone()
                };
                known(before) == known(now)
            }
            (before, now) => before == now,
        };
        if is_same {
            Ok(())
        } else {
            Err(Difference::Ends(format!("{now} instead of {}", self.ended)))
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Answered(answer) => write!(f, "answers {answer}"),
            Ended::Ready => write!(f, "is ready to create"),
            Ended::Found(Finding::Found(found)) => write!(f, "finds {found}"),
            Ended::Found(Finding::None) => write!(f, "finds nothing"),
            Ended::Found(Finding::CannotTell(failure)) => write!(f, "cannot tell: {}", failure.message),
            Ended::Failed(failure) => write!(f, "fails with {failure}"),
        }
    }
}

/// A request in words, for a message.
fn named(request: &HttpRequest) -> String {
    let effect = match request.effect {
        Does::Read => "read",
        Does::Change => "change",
        Does::Create => "create",
    };
    let HttpRequest {
        method,
        endpoint,
        path,
        ..
    } = request;
    let path = path.join("/");
    format!("{method} /{path} at {endpoint} ({effect})")
}
