//! The end of a pass.

use std::fmt;
use std::time::Duration;

use crate::Time;
use crate::contract::{Code, Effect, Failure, Next, Origin, Retry, RetryClass, Wait};
use crate::time::millis;

impl Next {
    /// There is nothing to do until something changes.
    pub fn settled() -> Next {
        Next::Settled(None)
    }

    /// There is nothing to do. The next pass comes after this time, even if nothing changes.
    pub fn settled_for(length: impl Into<Duration>) -> Next {
        Next::Settled(Some(millis(length.into())))
    }

    /// Work is in progress. The next pass comes after this time, or when something changes that the pass
    /// used.
    pub fn after(length: impl Into<Duration>) -> Next {
        Next::After(millis(length.into()))
    }

    /// Something stands in the way, without a failure. The retry policy decides how long to wait.
    pub fn retry(class: RetryClass) -> Next {
        Next::Retry(Retry { class, failure: None })
    }

    /// A failure stands in the way. The retry policy decides how long to wait.
    pub fn failed(class: RetryClass, failure: Failure) -> Next {
        Next::Retry(Retry {
            class,
            failure: Some(failure),
        })
    }
}

impl Failure {
    /// A failure that changed nothing.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            effect: Effect::None,
            retry_after: None,
            operation: None,
            detail: None,
        }
    }

    /// The same failure, with these words before its message.
    pub fn context(self, words: impl std::fmt::Display) -> Failure {
        Failure {
            message: format!("{words}: {}", self.message),
            ..self
        }
    }

    /// The class of the wait after this failure, if nothing more is known. After a conflict, looking again
    /// helps at once.
    pub fn retry_class(&self) -> RetryClass {
        match self.code {
            Code::Aborted => RetryClass::Conflict,
            _ => RetryClass::Short,
        }
    }

    /// Whether the requested object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }
}

impl Code {
    /// Every code, in the contract's order.
    pub const ALL: [Code; 16] = [
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The code as the contract writes it: `not-found`.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Cancelled => "cancelled",
            Code::Unknown => "unknown",
            Code::InvalidArgument => "invalid-argument",
            Code::DeadlineExceeded => "deadline-exceeded",
            Code::NotFound => "not-found",
            Code::AlreadyExists => "already-exists",
            Code::PermissionDenied => "permission-denied",
            Code::ResourceExhausted => "resource-exhausted",
            Code::FailedPrecondition => "failed-precondition",
            Code::Aborted => "aborted",
            Code::OutOfRange => "out-of-range",
            Code::Unimplemented => "unimplemented",
            Code::Internal => "internal",
            Code::Unavailable => "unavailable",
            Code::DataLoss => "data-loss",
            Code::Unauthenticated => "unauthenticated",
        }
    }
}

/// Distinguishes `not-found` from a failure to look.
pub trait Found<T> {
    /// `Ok(None)` for `not-found`. Every other failure stays a failure.
    fn found(self) -> Result<Option<T>, Failure>;
}

impl<T> Found<T> for Result<T, Failure> {
    fn found(self) -> Result<Option<T>, Failure> {
        match self {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// Whether the lifecycle policy may act, and in which session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may act with the session behind this handle. The handle was answered in this very pass.
    Granted(String),
    /// It may not act. The lifecycle policy is not called.
    Denied,
    /// The object is being deleted and its identity is gone: the host releases the object.
    Released,
}

/// The end of an identity policy. `Err(f)` is `Denied` with `retry(short, f)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// When the object gets its next pass. After `Granted` the `next` of the lifecycle policy counts, if the binding
    /// has one.
    pub next: Next,
}

impl Judgement {
    /// Granted, with the session behind this handle.
    pub fn granted(handle: impl Into<String>, next: Next) -> Self {
        Judgement {
            verdict: Verdict::Granted(handle.into()),
            next,
        }
    }

    /// The lifecycle policy may not act.
    pub fn denied(next: Next) -> Self {
        Judgement {
            verdict: Verdict::Denied,
            next,
        }
    }

    /// The host releases the object.
    pub fn released() -> Self {
        Judgement {
            verdict: Verdict::Released,
            next: Next::settled(),
        }
    }
}

/// The question for a retry policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRequest<C> {
    /// The API version of the object's kind: `v1`, or `group/version`.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// The object's namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The origin of the pass's end that is tried again.
    pub origin: Origin,
    /// The class of the wait.
    pub class: RetryClass,
    /// The failure, with a shortened message; `None` for a wait without a failure. Its operation is `quarantine` if
    /// a policy broke the contract, and `read` if the host could not read the object.
    pub failure: Option<Failure>,
    /// How many passes in a row ended in a failure before this one.
    pub attempt: u32,
    /// How long these passes have been failing.
    pub failing_for: Duration,
    /// How long the object waited after the pass before, if that pass ended in a retry too.
    pub previous_wait: Option<Duration>,
    /// A number derived from the object's uid and the attempt. It is the only source of randomness.
    pub seed: u64,
    /// The retry policy's configuration.
    pub config: C,
}

impl<C> RetryRequest<C> {
    /// The failure's code.
    pub fn code(&self) -> Option<Code> {
        self.failure.as_ref().map(|failure| failure.code)
    }

    /// The operation that failed, as [`failure`](Self::failure) names it.
    pub fn operation(&self) -> Option<&str> {
        self.failure.as_ref()?.operation.as_deref()
    }

    /// The pause that the other side asks for; zero if it asks for none. It is a hint.
    pub fn retry_after(&self) -> Duration {
        let asked = self.failure.as_ref().and_then(|failure| failure.retry_after);
        Duration::from_millis(asked.unwrap_or(0))
    }
}

impl Wait {
    /// Wait this long, or until the wanted state changes.
    pub fn after(length: impl Into<Duration>) -> Wait {
        Wait::After(millis(length.into()))
    }

    /// Wait until something changes, as after [`Next::settled`].
    pub fn on_change() -> Wait {
        Wait::OnChange(None)
    }

    /// Wait until something changes, at the latest for this long.
    pub fn on_change_within(length: impl Into<Duration>) -> Wait {
        Wait::OnChange(Some(millis(length.into())))
    }
}

impl From<Duration> for Wait {
    fn from(length: Duration) -> Self {
        Wait::after(length)
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Settled(None) => f.write_str("settled"),
            Next::Settled(Some(ms)) => write!(f, "settled({ms} ms)"),
            Next::After(ms) => write!(f, "after({ms} ms)"),
            Next::Retry(retry) => match &retry.failure {
                None => write!(f, "retry({:?})", retry.class),
                Some(failure) => {
                    write!(
                        f,
                        "retry({:?}, {}: {})",
                        retry.class,
                        failure.code.as_str(),
                        failure.message
                    )
                }
            },
        }
    }
}

impl crate::ActInDoubt {
    /// When the entry was written.
    pub fn written(&self) -> Time {
        Time::from_unix_ms(self.since)
    }
}
