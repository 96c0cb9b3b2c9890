//! The effect of a failed operation: what it may have changed. A driver can only add doubt, never remove it.

use polity_core::contract::{Code, Effect, Failure};
use polity_core::time::millis;
use polity_http::LONGEST_PAUSE;
use polity_sandbox::driver as guest;

/// The changes and creates that were sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing.
    #[default]
    Nothing,
    /// One change, which the server refused.
    Refused,
    /// A change, or a create, that was performed or may have been.
    Performed,
}

impl Sent {
    /// The state after one more change. `is_refused` if the API itself refused it.
    pub(crate) fn and(self, is_refused: bool) -> Self {
        match (self, is_refused) {
            (Sent::Nothing, true) => Sent::Refused,
            _ => Sent::Performed,
        }
    }

    /// The effect of a failure, as far as the host knows.
    pub(crate) fn effect(self) -> Effect {
        match self {
            Sent::Nothing | Sent::Refused => Effect::None,
            Sent::Performed => Effect::Unknown,
        }
    }
}

/// The most bytes of a driver's message. The journal of a pass keeps as many of a failure.
pub(crate) const MESSAGE: usize = 32_000;

/// A driver's failure, with the effect that the host has computed.
pub(crate) fn failure(said: guest::Failure, sent: Sent) -> Failure {
    let effect = match (said.doubtful, sent) {
        (true, Sent::Refused) => Effect::Unknown,
        _ => sent.effect(),
    };
    let end = said.message.floor_char_boundary(MESSAGE);
    Failure {
        effect,
        retry_after: said.retry_after.map(|asked| asked.min(millis(LONGEST_PAUSE))),
        ..Failure::new(code(said.code), &said.message[..end])
    }
}

fn code(code: guest::Code) -> Code {
    match code {
        guest::Code::Cancelled => Code::Cancelled,
        guest::Code::Unknown => Code::Unknown,
        guest::Code::InvalidArgument => Code::InvalidArgument,
        guest::Code::DeadlineExceeded => Code::DeadlineExceeded,
        guest::Code::NotFound => Code::NotFound,
        guest::Code::AlreadyExists => Code::AlreadyExists,
        guest::Code::PermissionDenied => Code::PermissionDenied,
        guest::Code::ResourceExhausted => Code::ResourceExhausted,
        guest::Code::FailedPrecondition => Code::FailedPrecondition,
        guest::Code::Aborted => Code::Aborted,
        guest::Code::OutOfRange => Code::OutOfRange,
        guest::Code::Unimplemented => Code::Unimplemented,
        guest::Code::Internal => Code::Internal,
        guest::Code::Unavailable => Code::Unavailable,
        guest::Code::DataLoss => Code::DataLoss,
        guest::Code::Unauthenticated => Code::Unauthenticated,
    }
}

/// The failure of a read, as the driver sees it.
pub(crate) fn of_read(code: Code, message: String) -> guest::Failure {
    let code = match code {
        Code::DeadlineExceeded => guest::Code::DeadlineExceeded,
        Code::ResourceExhausted => guest::Code::ResourceExhausted,
        Code::InvalidArgument => guest::Code::InvalidArgument,
        _ => guest::Code::Unavailable,
    };
    guest::Failure {
        code,
        message,
        retry_after: None,
        doubtful: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_of_the_only_change_had_no_effect() {
        for (before, is_refusal, after) in [
            (Sent::Nothing, true, Sent::Refused),
            (Sent::Nothing, false, Sent::Performed),
            (Sent::Performed, true, Sent::Performed),
            (Sent::Refused, true, Sent::Performed),
        ] {
            assert_eq!(before.and(is_refusal), after, "{before:?}, {is_refusal}");
        }
    }

    #[test]
    fn a_driver_that_passes_on_a_pause_of_a_day_puts_off_no_object_for_a_day() {
        let said = guest::Failure {
            code: guest::Code::Unavailable,
            message: String::new(),
            retry_after: Some(86_400_000),
            doubtful: false,
        };
        assert_eq!(failure(said, Sent::Nothing).retry_after, Some(300_000));
    }

    #[test]
    fn a_driver_adds_doubt_and_never_takes_it() {
        let said = |doubtful| guest::Failure {
            code: guest::Code::Aborted,
            message: "ä".repeat(20_000),
            retry_after: Some(5),
            doubtful,
        };
        for (doubtful, sent, effect) in [
            (false, Sent::Nothing, Effect::None),
            (true, Sent::Nothing, Effect::None),
            (false, Sent::Refused, Effect::None),
            (true, Sent::Refused, Effect::Unknown),
            (false, Sent::Performed, Effect::Unknown),
        ] {
            let failure = failure(said(doubtful), sent);
            assert_eq!(
                (failure.effect, failure.message.len()),
                (effect, MESSAGE),
                "{sent:?}"
            );
        }
    }
}
