//! Translates the errors of an API server into the codes of the contract, by the table in `wit/ERRORS.md`.

use std::error::Error as StdError;
use std::time::Duration;

use http::StatusCode;
use kube::client::AuthError;
use polity_core::contract::{Code, Failure, Json};
use polity_core::time::millis;
use serde_json::Value;

/// The kind of request. The same HTTP status means different things for different kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Create,
    Patch,
    Delete,
    Evict,
}

impl Verb {
    pub(crate) fn method(self) -> http::Method {
        match self {
            Verb::Get => http::Method::GET,
            Verb::Create | Verb::Evict => http::Method::POST,
            Verb::Patch => http::Method::PATCH,
            Verb::Delete => http::Method::DELETE,
        }
    }

    /// Marks the failure as `effect: unknown`, unless this verb only reads. Used when nobody knows whether
    /// the server carried the request out.
    pub(crate) fn unknown(self, failure: Failure) -> Failure {
        match self {
            Verb::Get => failure,
            _ => failure.effect_unknown(),
        }
    }
}

/// The longest wait that a server can ask for. Without this limit a server, or a proxy before it, could stop a watch or an
/// object for days.
const LONGEST_ASKED: Duration = Duration::from_secs(300);
/// The most bytes of a server's message that are passed on. The journal of a pass keeps as many of a failure.
const SAID: usize = 32_000;
/// The most bytes of a server's details that are passed on, as the contract says. JSON cannot be cut.
const DETAIL: usize = 4_096;

/// The failure for an HTTP response that is not a success. `body` is the `Status` object if the server sent
/// one. `retry_after` is the value of that header in seconds.
pub(crate) fn from_response(
    verb: Verb,
    what: &str,
    status: StatusCode,
    retry_after: Option<u64>,
    body: &Value,
) -> Failure {
    let said = body["message"]
        .as_str()
        .filter(|said| !said.is_empty())
        .or(status.canonical_reason())
        .unwrap_or("no message");
    // Cut the message: an invalid object can have thousands of errors.
    let said = &said[..said.floor_char_boundary(SAID)];
    let (code, is_definite) = match status.as_u16() {
        // A patch states its uid precondition as the value of `metadata.uid`. If another object has the name
        // now, the server sees a change of an immutable field and answers 422. That is a failed precondition
        // and no bad request.
        422 if concerns_uid(body) => (Code::Aborted, true),
        400 | 413 | 422 => (Code::InvalidArgument, true),
        401 => (Code::Unauthenticated, true),
        403 if said.contains("exceeded quota") => (Code::ResourceExhausted, true),
        403 => (Code::PermissionDenied, true),
        404 if is_path_unknown(body) => (Code::Unimplemented, true),
        404 => (Code::NotFound, true),
        409 if verb == Verb::Create && body["reason"] == "AlreadyExists" => (Code::AlreadyExists, true),
        409 => (Code::Aborted, true),
        410 => (Code::OutOfRange, true),
        429 if verb == Verb::Evict && is_budget_spent(body) => (Code::ResourceExhausted, true),
        429 => (Code::Unavailable, true),
        405 | 406 | 415 | 501 => (Code::Unimplemented, true),
        500 if verb == Verb::Evict && has_several_budgets(said) => (Code::FailedPrecondition, true),
        500 => (Code::Internal, false),
        502 | 503 => (Code::Unavailable, false),
        408 | 504 => (Code::DeadlineExceeded, false),
        _ => (Code::Unknown, false),
    };
    let seconds = body["details"]["retryAfterSeconds"].as_u64().or(retry_after);
    let failure = Failure {
        retry_after: seconds.map(|seconds| millis(Duration::from_secs(seconds).min(LONGEST_ASKED))),
        detail: detail_of(body),
        ..Failure::new(code, format!("{what}: {said}"))
    };
    if is_definite {
        failure
    } else {
        verb.unknown(failure)
    }
}

/// The details of a `Status` as JSON: the object, and the causes with their fields. They tell no more than the message, so
/// they hold no secret that the message does not.
fn detail_of(body: &Value) -> Option<Json> {
    let details = body["details"]
        .as_object()
        .filter(|details| !details.is_empty())?;
    let detail = serde_json::to_string(details).ok()?;
    (detail.len() <= DETAIL).then(|| detail.into())
}

/// Whether a 404 is about the path and not about an object: a `Status` for a missing object names the object.
fn is_path_unknown(body: &Value) -> bool {
    body["details"]["name"].as_str().unwrap_or_default().is_empty()
}

/// Whether the server refuses to evict a pod because more than one disruption budget covers it. Nothing was
/// tried, and only an edit of the budgets helps. The server answers with a 500 without a reason, unlike its
/// own errors (Kubernetes 1.36.3, `pkg/registry/core/pod/storage/eviction.go`).
fn has_several_budgets(said: &str) -> bool {
    said.starts_with("This pod has more than one PodDisruptionBudget")
}

/// Whether a 429 comes from a disruption budget that allows no eviction now, or is not computed yet. An
/// overloaded server also answers 429.
fn is_budget_spent(body: &Value) -> bool {
    causes_of(body).any(|cause| cause["reason"] == "DisruptionBudget")
}

fn concerns_uid(body: &Value) -> bool {
    causes_of(body).any(|cause| cause["field"] == "metadata.uid")
}

fn causes_of(body: &Value) -> impl Iterator<Item = &Value> {
    body["details"]["causes"].as_array().into_iter().flatten()
}

/// The failure for a request that got no response: nothing was sent, or the connection was cut.
pub(crate) fn from_transport(verb: Verb, what: &str, error: &kube::Error) -> Failure {
    let why = innermost(error);
    if matches!(error, kube::Error::Auth(_)) || causes(error).any(|e| e.is::<AuthError>()) {
        let message = format!("{what}: the credentials of the kubeconfig cannot be used: {why}");
        return Failure::new(Code::Unauthenticated, message);
    }
    if causes(error).any(is_unsent) {
        let message = format!("{what}: cannot reach the API server: {why}");
        return Failure::new(Code::Unavailable, message);
    }
    cut(verb, what, error)
}

/// The failure for a connection that ended before the answer did.
pub(crate) fn cut(verb: Verb, what: &str, error: &(dyn StdError + 'static)) -> Failure {
    let message = format!("{what}: the connection was cut: {}", innermost(error));
    verb.unknown(Failure::new(Code::DeadlineExceeded, message))
}

/// The failure for a call that reached its time limit.
pub(crate) fn too_long(verb: Verb, what: &str) -> Failure {
    verb.unknown(Failure::new(
        Code::DeadlineExceeded,
        format!("{what}: no answer in time"),
    ))
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

/// Whether no connection was made: the name was not resolved, the connection was refused, or TLS failed. Then
/// the request was not sent, and its effect is none.
fn is_unsent(error: &(dyn StdError + 'static)) -> bool {
    let http = error.downcast_ref::<hyper_util::client::legacy::Error>();
    let io = error.downcast_ref::<std::io::Error>();
    http.is_some_and(hyper_util::client::legacy::Error::is_connect)
        || io.is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_core::contract::Effect;
    use serde_json::json;

    #[test]
    fn every_row_of_the_table_holds() {
        use Verb::{Create, Delete, Evict, Get, Patch};
        let (none, unknown) = (Effect::None, Effect::Unknown);
        for (verb, status, reason, code, effect) in [
            (Patch, 400, "BadRequest", Code::InvalidArgument, none),
            (Patch, 422, "Invalid", Code::InvalidArgument, none),
            (Create, 413, "RequestEntityTooLarge", Code::InvalidArgument, none),
            (Get, 401, "Unauthorized", Code::Unauthenticated, none),
            (Get, 403, "Forbidden", Code::PermissionDenied, none),
            (Get, 404, "NotFound", Code::NotFound, none),
            (Delete, 404, "NotFound", Code::NotFound, none),
            (Create, 409, "AlreadyExists", Code::AlreadyExists, none),
            (Create, 409, "Conflict", Code::Aborted, none),
            (Patch, 409, "Conflict", Code::Aborted, none),
            (Delete, 409, "Conflict", Code::Aborted, none),
            (Get, 410, "Expired", Code::OutOfRange, none),
            (Evict, 429, "TooManyRequests", Code::Unavailable, none),
            (Patch, 429, "TooManyRequests", Code::Unavailable, none),
            (Patch, 405, "MethodNotAllowed", Code::Unimplemented, none),
            (Patch, 415, "UnsupportedMediaType", Code::Unimplemented, none),
            (Patch, 501, "NotImplemented", Code::Unimplemented, none),
            (Get, 500, "InternalError", Code::Internal, none),
            (Patch, 500, "InternalError", Code::Internal, unknown),
            (Create, 502, "", Code::Unavailable, unknown),
            (Get, 503, "ServiceUnavailable", Code::Unavailable, none),
            (Patch, 503, "ServiceUnavailable", Code::Unavailable, unknown),
            (Evict, 503, "ServiceUnavailable", Code::Unavailable, unknown),
            (Get, 504, "Timeout", Code::DeadlineExceeded, none),
            (Delete, 504, "Timeout", Code::DeadlineExceeded, unknown),
            (Patch, 418, "", Code::Unknown, unknown),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let body = json!({"kind": "Status", "reason": reason, "details": {"name": "m"}});
            let failure = from_response(verb, "Machine a/m", status, None, &body);
            assert_eq!(
                (failure.code, failure.effect),
                (code, effect),
                "{verb:?} {status} {reason}"
            );
            assert!(failure.message.starts_with("Machine a/m: "), "{failure}");
        }
    }

    #[test]
    fn a_kind_that_is_not_served_is_no_missing_object() {
        let said = "the server could not find the requested resource";
        for body in [Value::Null, json!({"message": said, "details": {}})] {
            let failure = from_response(Verb::Get, "x", StatusCode::NOT_FOUND, None, &body);
            assert_eq!(failure.code, Code::Unimplemented);
        }
    }

    #[test]
    fn a_uid_that_does_not_hold_is_a_conflict() {
        let body = json!({"reason": "Invalid", "details": {"causes": [{"field": "metadata.uid"}]}});
        let failure = from_response(Verb::Patch, "x", StatusCode::UNPROCESSABLE_ENTITY, None, &body);
        assert_eq!(failure.code, Code::Aborted);
    }

    #[test]
    fn a_quota_is_no_lack_of_permission() {
        let quota = json!({"message": "pods \"a\" is forbidden: exceeded quota: q"});
        let failure = from_response(Verb::Create, "x", StatusCode::FORBIDDEN, None, &quota);
        assert_eq!(failure.code, Code::ResourceExhausted);
    }

    #[test]
    fn the_details_of_a_status_are_passed_on_unless_they_are_too_long() {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let of = |body: &Value| from_response(Verb::Patch, "x", status, None, body).detail;
        let causes = json!({"causes": [{"field": "spec.a"}]});
        let detail = of(&json!({"details": causes})).expect("details");
        assert_eq!(serde_json::from_str::<Value>(&detail).expect("JSON"), causes);
        assert_eq!(of(&json!({"details": {"name": "x".repeat(DETAIL)}})), None);
        for body in [
            json!({"details": {}}),
            json!({"details": "text"}),
            json!({}),
            Value::Null,
        ] {
            assert_eq!(of(&body), None, "{body}");
        }
    }

    #[test]
    fn a_wish_to_wait_is_kept() {
        let busy = json!({"details": {"retryAfterSeconds": 7}});
        let status = StatusCode::TOO_MANY_REQUESTS;
        let failure = from_response(Verb::Evict, "x", status, Some(1), &busy);
        assert_eq!(failure.retry_after, Some(7_000));
        let failure = from_response(Verb::Evict, "x", status, Some(1), &Value::Null);
        assert_eq!(failure.retry_after, Some(1_000));
        let failure = from_response(Verb::Evict, "x", status, Some(u64::MAX), &Value::Null);
        assert_eq!(
            failure.retry_after,
            Some(300_000),
            "no server stops an object for days"
        );
    }

    /// The refusals of evictions as kube-apiserver 1.36.3 sends them. `tests/tests/evictions.rs` checks them
    /// against a real one.
    #[test]
    fn an_eviction_is_refused_for_now_or_until_somebody_edits_the_budgets() {
        let spent = |cause: &str, seconds: Option<u64>| {
            let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
            if let Some(seconds) = seconds {
                details["retryAfterSeconds"] = json!(seconds);
            }
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            json!({"message": message, "reason": "TooManyRequests", "details": details})
        };
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let crash =
            json!({"message": "Internal error occurred: x", "reason": "InternalError", "details": {}});
        let (spent_budget, none) = (Code::ResourceExhausted, Effect::None);
        for (status, body, code, effect, retry_after) in [
            (
                429,
                spent(
                    "The disruption budget b needs 1 healthy pods and has 1 currently",
                    None,
                ),
                spent_budget,
                none,
                None,
            ),
            (
                429,
                spent(
                    "The disruption budget b is still being processed by the server.",
                    Some(10),
                ),
                spent_budget,
                none,
                Some(10_000),
            ),
            (
                429,
                json!({"reason": "TooManyRequests", "details": {}}),
                Code::Unavailable,
                none,
                None,
            ),
            (500, json!({"message": two}), Code::FailedPrecondition, none, None),
            (500, crash, Code::Internal, Effect::Unknown, None),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let failure = from_response(Verb::Evict, "Pod a/p", status, None, &body);
            let seen = (failure.code, failure.effect, failure.retry_after);
            assert_eq!(seen, (code, effect, retry_after), "{body}");
        }
        let other = from_response(
            Verb::Delete,
            "Pod a/p",
            StatusCode::INTERNAL_SERVER_ERROR,
            None,
            &json!({"message": two}),
        );
        assert_eq!(other.code, Code::Internal, "only evictions are refused so");
    }

    #[test]
    fn what_was_never_sent_has_no_effect_and_what_was_cut_may_have_one() {
        let io = |kind| kube::Error::Service(Box::new(std::io::Error::from(kind)));
        let refused = from_transport(Verb::Create, "x", &io(std::io::ErrorKind::ConnectionRefused));
        assert_eq!((refused.code, refused.effect), (Code::Unavailable, Effect::None));
        for (verb, effect) in [(Verb::Create, Effect::Unknown), (Verb::Get, Effect::None)] {
            for failure in [
                from_transport(verb, "x", &io(std::io::ErrorKind::ConnectionReset)),
                too_long(verb, "x"),
            ] {
                assert_eq!((failure.code, failure.effect), (Code::DeadlineExceeded, effect));
            }
        }
    }
}
