//! From what an API server says to the contract's codes, by the table of `wit/ERRORS.md`.

use http::StatusCode;
use polity_core::contract::{Code, Failure};
use serde_json::Value;

/// What a request wanted: some errors mean different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Create,
    Write,
    Evict,
}

/// A failure from an HTTP response that is not a success. `body` is a `Status` where the server sent one.
pub(crate) fn from_response(
    verb: Verb,
    what: &str,
    status: StatusCode,
    retry: Option<u64>,
    body: &Value,
) -> Failure {
    let said = body["message"]
        .as_str()
        .unwrap_or_else(|| status.canonical_reason().unwrap_or("no message"));
    let is_write = verb != Verb::Read;
    let mut unknown = false;
    let code = match status.as_u16() {
        400 | 413 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 if said.contains("exceeded quota") => Code::ResourceExhausted,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        409 if verb == Verb::Create && body["reason"] == "AlreadyExists" => Code::AlreadyExists,
        409 => Code::Aborted,
        410 => Code::OutOfRange,
        429 => Code::Unavailable,
        405 | 415 | 501 => Code::Unimplemented,
        502 | 503 => {
            unknown = is_write;
            Code::Unavailable
        }
        504 => {
            unknown = is_write;
            Code::DeadlineExceeded
        }
        500 => {
            unknown = is_write;
            Code::Internal
        }
        _ => {
            unknown = is_write;
            Code::Unknown
        }
    };
    let retry_after = body["details"]["retryAfterSeconds"]
        .as_u64()
        .or(retry)
        .map(|seconds| seconds * 1_000);
    let failure = Failure {
        retry_after,
        ..Failure::new(code, format!("{what}: {said}"))
    };
    if unknown {
        failure.effect_unknown()
    } else {
        failure
    }
}

/// A failure to get any response: refused before anything was sent, or cut in the middle.
pub(crate) fn from_transport(verb: Verb, what: &str, error: &kube::Error) -> Failure {
    if never_sent(error) {
        return Failure::new(Code::Unavailable, format!("{what}: cannot reach the API server"));
    }
    let failure = Failure::new(Code::DeadlineExceeded, format!("{what}: the connection was cut"));
    if verb == Verb::Read {
        failure
    } else {
        failure.effect_unknown()
    }
}

/// A call that took too long.
pub(crate) fn too_long(verb: Verb, what: &str) -> Failure {
    let failure = Failure::new(Code::DeadlineExceeded, format!("{what}: no answer in time"));
    if verb == Verb::Read {
        failure
    } else {
        failure.effect_unknown()
    }
}

/// Whether a connection was never made.
fn never_sent(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if e.downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(|e| e.is_connect())
        {
            return true;
        }
        if e.downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            return true;
        }
        cause = e.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_core::contract::Effect;
    use serde_json::json;

    #[test]
    fn every_row_of_the_table_holds() {
        use Verb::{Create, Evict, Read, Write};
        let none = Effect::None;
        for (verb, status, reason, code, effect) in [
            (Write, 400, "BadRequest", Code::InvalidArgument, none),
            (Write, 422, "Invalid", Code::InvalidArgument, none),
            (Read, 401, "Unauthorized", Code::Unauthenticated, none),
            (Read, 403, "Forbidden", Code::PermissionDenied, none),
            (Read, 404, "NotFound", Code::NotFound, none),
            (Create, 409, "AlreadyExists", Code::AlreadyExists, none),
            (Create, 409, "Conflict", Code::Aborted, none),
            (Write, 409, "Conflict", Code::Aborted, none),
            (Read, 410, "Expired", Code::OutOfRange, none),
            (Evict, 429, "TooManyRequests", Code::Unavailable, none),
            (Write, 429, "TooManyRequests", Code::Unavailable, none),
            (Write, 405, "MethodNotAllowed", Code::Unimplemented, none),
            (Write, 415, "UnsupportedMediaType", Code::Unimplemented, none),
            (Write, 501, "NotImplemented", Code::Unimplemented, none),
            (Write, 500, "InternalError", Code::Internal, Effect::Unknown),
            (Read, 500, "InternalError", Code::Internal, none),
            (Write, 502, "", Code::Unavailable, Effect::Unknown),
            (
                Write,
                503,
                "ServiceUnavailable",
                Code::Unavailable,
                Effect::Unknown,
            ),
            (Write, 504, "Timeout", Code::DeadlineExceeded, Effect::Unknown),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let failure = from_response(verb, "x", status, None, &json!({"reason": reason}));
            assert_eq!(
                (failure.code, failure.effect),
                (code, effect),
                "{verb:?} {status} {reason}"
            );
        }
    }

    #[test]
    fn a_quota_is_no_lack_of_permission_and_a_wish_to_wait_is_kept() {
        let quota = json!({"message": "pods \"a\" is forbidden: exceeded quota: q"});
        let failure = from_response(Verb::Create, "x", StatusCode::FORBIDDEN, None, &quota);
        assert_eq!(failure.code, Code::ResourceExhausted);
        let busy = json!({"details": {"retryAfterSeconds": 7}});
        let failure = from_response(Verb::Evict, "x", StatusCode::TOO_MANY_REQUESTS, Some(1), &busy);
        assert_eq!(failure.retry_after, Some(7_000));
    }
}
