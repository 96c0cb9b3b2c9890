//! Reads the objects that the cluster refers to, and interprets failures of these reads (CAPA-06).

use polity_sdk::prelude::*;

use crate::Cx;
use crate::object::IdentityKind;
use crate::stop::Stop;

/// The reason of the condition if an identity, or an object that it needs, cannot be read.
pub(crate) const RETRIEVAL_FAILED: &str = "PrincipalCredentialRetrievalFailed";

/// Reads an identity that must exist.
pub(crate) async fn identity<K: IdentityKind>(cx: &Cx, name: &str) -> Result<K, Stop> {
    let answer = cx.ask(cluster::object::<K>(name)).await;
    answer.map_err(|failure| no_identity::<K>(cx, name, failure))
}

/// The stop if an identity cannot be read.
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

/// The stop if an object cannot be read. If it does not exist, waiting does not help; after a failed read it may.
pub(crate) fn failed(cx: &Cx, kind: &str, name: &str, failure: Failure) -> Stop {
    let message = if failure.is_not_found() {
        format!("{kind} {name} does not exist")
    } else {
        format!("{kind} {name} cannot be read: {}", failure.message)
    };
    lacking(cx, RETRIEVAL_FAILED, message).for_the_sake_of(failure)
}

/// The stop if there are no credentials, and only a change of the objects that were read can help.
pub(crate) fn lacking(cx: &Cx, reason: &'static str, message: impl Into<String>) -> Stop {
    cx.note("CAPA-06");
    Stop::failed(reason, message)
}

/// Whether the same question may soon get another answer, without a change of the objects.
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
