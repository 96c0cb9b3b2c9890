//! Why a pass goes no further, and what people read of it: a reason and a message.

use polity_sdk::prelude::*;

/// Until the next pass when this one has only written down what that one does.
pub const SOON: Period = Period::from_secs(1);

/// Why a pass goes no further.
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    /// CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// It should have been over by now.
    pub degraded: bool,
    /// A drain has not ended: what takes no node away may go on.
    pub draining: bool,
    /// When to look again.
    pub next: Next,
}

impl Stop {
    /// The world takes its time.
    pub fn wait(length: Period, reason: &'static str, message: impl Into<String>) -> Stop {
        Stop {
            reason,
            message: message.into(),
            degraded: false,
            draining: false,
            next: Next::after(length),
        }
    }

    /// A step failed: the next pass begins again. A conflict is somebody else's write, and nothing to worry about.
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

    /// Both: this one is what people read first. What waits for the world is looked at again in its time, whatever the
    /// retry policy says of the other.
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

    /// Something is not as it has to be, and only a person or time can change that.
    pub fn refuse(reason: &'static str, message: impl Into<String>) -> Stop {
        Stop::failed(reason, Failure::new(Code::FailedPrecondition, message))
    }
}

/// Gives a failure the reason that people read.
pub trait Because<T> {
    /// CamelCase.
    fn because(self, reason: &'static str) -> Result<T, Stop>;
}

impl<T> Because<T> for Result<T, Failure> {
    fn because(self, reason: &'static str) -> Result<T, Stop> {
        self.map_err(|failure| Stop::failed(reason, failure))
    }
}
