//! Stops: why a pass ends early, with a reason and a message for people.

use polity_sdk::prelude::*;

/// The time until the next pass if this pass only recorded what the next one does.
pub const SOON: Period = Period::from_secs(1);

/// The reason why a pass ends early.
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// Whether this takes longer than it should.
    pub degraded: bool,
    /// Whether a drain is in progress. Work that removes no other node may go on.
    pub draining: bool,
    /// When to make the next pass.
    pub next: Next,
}

impl Stop {
    /// A stop that waits for the cluster or the cloud.
    pub fn wait(length: Period, reason: &'static str, message: impl Into<String>) -> Stop {
        Stop {
            reason,
            message: message.into(),
            degraded: false,
            draining: false,
            next: Next::after(length),
        }
    }

    /// A stop because a step failed. The next pass begins again. A conflict means only that another client wrote first,
    /// so it is not reported as a problem.
    pub fn failed(reason: &'static str, failure: Failure) -> Stop {
        let (class, degraded) = match failure.code {
            Code::Aborted => (RetryClass::Conflict, false),
            _ => (RetryClass::Short, true),
        };
        Stop {
            reason,
            message: failure.message.clone(),
            degraded,
            draining: false,
            next: Next::failed(class, failure),
        }
    }

    /// Combines two stops. The message of this stop comes first. A stop that waits keeps its own time, whatever the retry
    /// policy says about the other stop.
    pub fn beside(self, other: Stop) -> Stop {
        let next = match (self.next, other.next) {
            (Next::After(one), Next::After(two)) => Next::After(one.min(two)),
            (Next::After(wait), _) | (_, Next::After(wait)) => Next::After(wait),
            (next, _) => next,
        };
        Stop {
            message: format!("{}; {}", self.message, other.message),
            degraded: self.degraded || other.degraded,
            next,
            ..self
        }
    }

    /// A stop that only a person or time can end.
    pub fn refuse(reason: &'static str, message: impl Into<String>) -> Stop {
        Stop::failed(reason, Failure::new(Code::FailedPrecondition, message))
    }
}

/// Gives a failure the reason that people read.
pub trait Because<T> {
    /// The reason is in CamelCase.
    fn because(self, reason: &'static str) -> Result<T, Stop>;
}

impl<T> Because<T> for Result<T, Failure> {
    fn because(self, reason: &'static str) -> Result<T, Stop> {
        self.map_err(|failure| Stop::failed(reason, failure))
    }
}
