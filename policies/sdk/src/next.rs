//! What a pass ends with.

use std::fmt;
use std::time::Duration;

use crate::Time;
use crate::contract::{Code, Effect, Failure, Next, Origin, Retry, RetryClass, Wait};
use crate::time::millis;

impl Next {
    /// Nothing to do until something changes.
    pub fn settled() -> Next {
        Next::Settled(None)
    }

    /// Nothing to do; look again after this long even if nothing changes.
    pub fn settled_for(length: impl Into<Duration>) -> Next {
        Next::Settled(Some(millis(length.into())))
    }

    /// In progress: look again after this long, or when something the pass used changes.
    pub fn after(length: impl Into<Duration>) -> Next {
        Next::After(millis(length.into()))
    }

    /// Something stands in the way, without a failure: the retry policy says how long to wait.
    pub fn retry(class: RetryClass) -> Next {
        Next::Retry(Retry { class, failure: None })
    }

    /// A failure stands in the way: the retry policy says how long to wait.
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

    /// How long to wait after it, where nothing more is known: a conflict is somebody else's write, and looking again
    /// helps at once.
    pub fn retry_class(&self) -> RetryClass {
        match self.code {
            Code::Aborted => RetryClass::Conflict,
            _ => RetryClass::Short,
        }
    }

    /// Whether what was asked for definitely does not exist.
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

    /// The code as the contract spells it: `not-found`.
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

/// Tells a definite `not-found` from a failure to look.
pub trait Found<T> {
    /// `Ok(None)` for `not-found`; every other failure stays one.
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

/// May the lifecycle act, and as whom?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With the session behind this handle, which was answered in this very pass.
    Granted(String),
    /// No: the lifecycle is not run.
    Denied,
    /// The object is being deleted and its identity is gone: let go of it.
    Released,
}

/// What an identity policy ends with. `Err(f)` is `Denied` with `retry(short, f)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// May the lifecycle act?
    pub verdict: Verdict,
    /// When to judge again.
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

    /// Denied.
    pub fn denied(next: Next) -> Self {
        Judgement {
            verdict: Verdict::Denied,
            next,
        }
    }

    /// Released.
    pub fn released() -> Self {
        Judgement {
            verdict: Verdict::Released,
            next: Next::settled(),
        }
    }
}

/// What a retry policy is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRequest<C> {
    /// Of the object: `v1`, or `group/version`.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// The object's namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Whose end has to be tried again.
    pub origin: Origin,
    /// Which sort of wait.
    pub class: RetryClass,
    /// The failure, its message cut; none for a wait without one. The host never waits less than its `retry_after`.
    pub failure: Option<Failure>,
    /// How many passes before this one ended in a failure, in an unbroken row.
    pub attempt: u32,
    /// How long that row has lasted.
    pub failing_for: Duration,
    /// How long the object waited after the pass before, where that one ended in a retry, too.
    pub previous_wait: Option<Duration>,
    /// The only randomness there is: derived from the object's uid and the attempt.
    pub seed: u64,
    /// The retry policy's configuration.
    pub config: C,
}

impl<C> RetryRequest<C> {
    /// The failure's code.
    pub fn code(&self) -> Option<Code> {
        self.failure.as_ref().map(|failure| failure.code)
    }
}

impl Wait {
    /// Waits this long, or until something new is wanted.
    pub fn after(length: impl Into<Duration>) -> Wait {
        Wait::After(millis(length.into()))
    }

    /// Until something changes, as after [`Next::settled`].
    pub fn on_change() -> Wait {
        Wait::OnChange(None)
    }

    /// Until something changes, and at the latest after this long.
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
