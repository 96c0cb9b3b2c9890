//! Reasons for refusing a request: no grant allows it, or the request is wrong in itself.

use std::fmt;

use super::grant::Verb;
use crate::contract::{Code, Failure, Kind, ObjectRef};
use crate::object::Object;

/// The reason for refusing a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// No grant of the binding allows the request. This is shown on the binding.
    Ungranted(Ungranted),
    /// The request is wrong, whatever is granted.
    Wrong(Failure),
}

/// A request that no grant of a binding allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ungranted {
    /// Do this with this object.
    Object(Verb, Named),
    /// List this kind.
    List(String),
    /// Select objects of a kind by a field that the grant does not show.
    Selection {
        /// The kind.
        kind: String,
        /// The field's path.
        field: String,
    },
    /// Do anything with a kind that decides over rights.
    Closed(Kind),
    /// Use an object that does not have the relation of the grant.
    Unrelated(Named),
    /// Create this kind of workload without a grant that names the object.
    Workload(String),
    /// Write `status.pending` of this object, which belongs to the host.
    Pending(Named),
    /// Create an object with conditions of the host.
    HostConditions,
    /// Change the conditions of the host on an object.
    HostConditionsOf(Named),
    /// Patch this subresource of this object.
    Subresource(String, Named),
    /// Write these metadata lists of this object.
    Metadata(Vec<&'static str>, Named),
    /// See that this Secret exists.
    Secret(String),
    /// Give this Secret to a cloud.
    Unseal(String),
    /// Call this operation of a cloud.
    Operation(String),
    /// Take this lock.
    Lock(String),
    /// Describe credential plans.
    Credential,
    /// Use a credential plan that names this Secret.
    CredentialOf(String),
    /// Use a credential plan that names this service account: `NAMESPACE/NAME`.
    CredentialBy(String),
    /// Ask whether the API server answers.
    Reachable,
    /// Mint this kind of token.
    Mint(String),
    /// Revoke a minted token.
    Revoke,
}

/// An object as refusals name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its kind.
    pub kind: String,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// `metadata.name`
    pub name: String,
}

impl From<&ObjectRef> for Named {
    fn from(object: &ObjectRef) -> Self {
        Named {
            kind: object.kind.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        }
    }
}

impl From<&Object> for Named {
    fn from(object: &Object) -> Self {
        Named {
            kind: object.kind().kind,
            namespace: object.namespace().map(str::to_owned),
            name: object.name().to_owned(),
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
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

impl fmt::Display for Ungranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not granted: ")?;
        match self {
            Ungranted::Object(verb, object) => write!(f, "{verb} {object}"),
            Ungranted::List(kind) => write!(f, "list {kind}"),
            Ungranted::Selection { kind, field } => {
                write!(f, "select {kind} by {field}, which its grant does not show")
            }
            Ungranted::Closed(kind) => {
                write!(f, "{} of {} is closed to policies", kind.kind, kind.api_version)
            }
            Ungranted::Unrelated(object) => write!(f, "{object}: not related"),
            Ungranted::Workload(kind) => write!(f, "create workload {kind} by name"),
            Ungranted::Pending(object) => {
                write!(f, "write status.pending of {object}: it belongs to the host")
            }
            Ungranted::HostConditions => f.write_str("create with conditions of the host"),
            Ungranted::HostConditionsOf(Named { kind, name, .. }) => write!(
                f,
                "write conditions of the host on {kind} {name}: a patch of the conditions must keep them"
            ),
            Ungranted::Subresource(name, object) => write!(f, "patch subresource {name} of {object}"),
            Ungranted::Metadata(fields, object) => {
                write!(f, "write metadata.{} of {object}", fields.join(", metadata."))
            }
            Ungranted::Secret(name) => write!(f, "see Secret {name}"),
            Ungranted::Unseal(name) => write!(f, "unseal Secret {name}"),
            Ungranted::Operation(name) => write!(f, "cloud operation {name}"),
            Ungranted::Lock(name) => write!(f, "lock {name}"),
            Ungranted::Credential => f.write_str("credential"),
            Ungranted::CredentialOf(name) => write!(f, "credential of Secret {name}"),
            Ungranted::CredentialBy(account) => {
                write!(f, "credential by a token of ServiceAccount {account}")
            }
            Ungranted::Reachable => f.write_str("ask whether the API server answers"),
            Ungranted::Mint(kind) => write!(f, "mint {kind}"),
            Ungranted::Revoke => f.write_str("revoke a token"),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Wrong(failure)
    }
}

impl From<Ungranted> for Refusal {
    fn from(ungranted: Ungranted) -> Self {
        Refusal::Ungranted(ungranted)
    }
}

impl From<Ungranted> for Failure {
    fn from(ungranted: Ungranted) -> Self {
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

    #[test]
    fn a_refusal_says_what_is_not_granted() {
        let object = |namespace: Option<&str>| Named {
            kind: "Any".into(),
            namespace: namespace.map(str::to_owned),
            name: "one".into(),
        };
        for (ungranted, said) in [
            (
                Ungranted::Object(Verb::Ask, object(Some("team"))),
                "not granted: ask for Any team/one",
            ),
            (
                Ungranted::Object(Verb::Evict, object(None)),
                "not granted: evict Any one",
            ),
            (
                Ungranted::Unrelated(object(None)),
                "not granted: Any one: not related",
            ),
            (
                Ungranted::Metadata(vec!["finalizers", "ownerReferences"], object(None)),
                "not granted: write metadata.finalizers, metadata.ownerReferences of Any one",
            ),
            (
                Ungranted::HostConditionsOf(object(Some("team"))),
                "not granted: write conditions of the host on Any one: a patch of the conditions must keep them",
            ),
            (Ungranted::Lock("l".into()), "not granted: lock l"),
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
