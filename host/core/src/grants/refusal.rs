//! Reasons for refusing a request: no grant allows it, or the request is wrong in itself.

use std::fmt;

use super::grant::Verb;
use crate::contract::{Code, Failure, ObjectRef};

/// The reason for refusing a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// No grant of the binding allows the request. This is shown on the binding.
    Ungranted(MissingGrant),
    /// The request is wrong, whatever is granted.
    Wrong(Failure),
}

/// What a request would do that no grant of a binding allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingGrant(String);

/// An object, as refusals name it.
pub(super) fn named(object: &ObjectRef) -> String {
    let ObjectRef { kind, name, .. } = object;
    match &object.namespace {
        Some(namespace) => format!("{} {namespace}/{name}", kind.kind),
        None => format!("{} {name}", kind.kind),
    }
}

impl MissingGrant {
    /// By what it would do, as a sentence ends that says what is not granted.
    pub(crate) fn to(what: impl Into<String>) -> Self {
        MissingGrant(what.into())
    }

    /// An object that does not have the relation of its grant.
    pub(super) fn unrelated(object: &ObjectRef) -> Self {
        MissingGrant(format!("{}: not related", named(object)))
    }
}

impl fmt::Display for MissingGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not granted: {}", self.0)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Ask => "ask for",
            Verb::Create => "create",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::Evict => "evict",
        })
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Wrong(failure)
    }
}

impl From<MissingGrant> for Refusal {
    fn from(ungranted: MissingGrant) -> Self {
        Refusal::Ungranted(ungranted)
    }
}

impl From<MissingGrant> for Failure {
    fn from(ungranted: MissingGrant) -> Self {
        Failure::new(Code::PermissionDenied, ungranted.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Ungranted(ungranted) => ungranted.into(),
            Refusal::Wrong(failure) => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Kind;

    #[test]
    fn a_refusal_says_what_is_not_granted() {
        let object = |namespace: Option<&str>| ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: "v1".into(),
                kind: "Any".into(),
            },
            namespace: namespace.map(str::to_owned),
            name: "one".into(),
        };
        for (ungranted, said) in [
            (
                MissingGrant::to(format!("{} {}", Verb::Ask, named(&object(Some("team"))))),
                "not granted: ask for Any team/one",
            ),
            (
                MissingGrant::unrelated(&object(None)),
                "not granted: Any one: not related",
            ),
        ] {
            let failure = Failure::from(Refusal::from(ungranted));
            assert_eq!(
                (failure.code, failure.message.as_str()),
                (Code::PermissionDenied, said)
            );
        }
        let wrong = Failure::new(Code::InvalidArgument, "no valid name: x y");
        assert_eq!(Failure::from(Refusal::from(wrong.clone())), wrong);
    }
}
