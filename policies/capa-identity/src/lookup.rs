//! Looking at what the cluster refers to, and what it means when that fails (CAPA-06).

use polity_sdk::prelude::*;

use crate::Cx;
use crate::object::IdentityKind;
use crate::stop::Stop;

/// The reason of the condition when an identity, or what it needs, cannot be had.
pub(crate) const RETRIEVAL_FAILED: &str = "PrincipalCredentialRetrievalFailed";

/// An identity that must exist.
pub(crate) async fn identity<K: IdentityKind>(cx: &Cx, name: &str) -> Result<K, Stop> {
    let answer = cx.ask(cluster::object::<K>(name)).await;
    answer.map_err(|failure| no_identity::<K>(cx, name, failure))
}

/// An identity could not be had.
pub(crate) fn no_identity<K: IdentityKind>(cx: &Cx, name: &str, failure: Failure) -> Stop {
    Stop {
        gone: failure.is_not_found(),
        ..failed(cx, K::KIND, name, failure)
    }
}

/// An object's kind and name.
pub(crate) fn named<K: Kind>(name: &str) -> String {
    format!("{} {name}", K::KIND)
}

/// An object could not be had: it does not exist, which time does not mend, or could not be looked at, which it may.
pub(crate) fn failed(cx: &Cx, kind: &str, name: &str, failure: Failure) -> Stop {
    let message = match failure.is_not_found() {
        true => format!("{kind} {name} does not exist"),
        false => format!("{kind} {name} cannot be looked at: {}", failure.message),
    };
    lacking(cx, RETRIEVAL_FAILED, message).for_the_sake_of(failure)
}

/// The credentials cannot be had, and only a change of what was looked at mends that.
pub(crate) fn lacking(cx: &Cx, reason: &'static str, message: impl Into<String>) -> Stop {
    cx.note("CAPA-06");
    Stop::failed(reason, message)
}

/// Whether the same question may have another answer soon, without a change of what is asked for.
pub(crate) fn is_transient(code: Code) -> bool {
    !matches!(
        code,
        Code::NotFound
            | Code::PermissionDenied
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
    )
}
