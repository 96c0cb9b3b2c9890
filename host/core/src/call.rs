//! What core wants done, and what comes of it. The engine turns each call into a future and its reply into an input.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

use crate::binding::{Limits, PolicyId};
use crate::catalogue::SecretRef;
use crate::contract::{
    Act, Answer, Document, Failure, Json, Kind, ObjectRef, Pass, Precondition, Question, Resolution,
    RetryRequest, Role, Wait,
};
pub use crate::controller::cache::KEPT_METADATA;
use crate::fault::Stepped;
use crate::object::Object;
use crate::render::{Render, Rendered};
use crate::time::{Unix, as_millis};

/// Names one call; its reply carries the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// Something core cannot do itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Call a policy. Reply: [`Reply::Stepped`].
    Step {
        /// The policy.
        policy: PolicyId,
        /// The role in which it is called.
        role: Role,
        /// The snapshot and the journal so far.
        pass: Arc<Pass>,
        /// The limits of the pass's binding.
        limits: Limits,
    },
    /// Ask the retry policy. Reply: [`Reply::Decided`].
    Decide {
        /// The retry policy.
        policy: PolicyId,
        /// What is to be tried again.
        request: RetryRequest,
        /// The limits of the binding.
        limits: Limits,
    },
    /// Read or change something in a cloud. Reply: [`Reply::Answer`].
    Cloud(CloudRequest),
    /// Everything that a create has to read, before anything is written of it: no more than reads leave the host. Reply:
    /// [`Reply::Prepared`].
    Prepare(CloudRequest),
    /// Create what was prepared and entered: one request. Reply: [`Reply::Answer`].
    Commit(Commit),
    /// What came of a create whose answer was lost. Reply: [`Reply::Resolved`].
    Resolve {
        /// Which cloud, as whom, for which object.
        session: Session,
        /// The entry in doubt.
        entry: PendingEntry,
    },
    /// Build or fetch a session. Reply: [`Reply::Answer`] with `{handle, reused, attributes}`.
    Credential {
        /// Which cloud.
        cloud: String,
        /// For whom: handles are valid for this object only.
        owner: String,
        /// What the identity policy described.
        plan: Document,
    },
    /// Read through to the API server: `object` or `objects`. Reply: [`Reply::Objects`], unprojected; of `secret` or
    /// `reachable`: [`Reply::Answer`].
    Read(Question),
    /// Render a long list. Reply: [`Reply::Rendered`].
    Render(Box<Render>),
    /// Make a token. Reply: [`Reply::Answer`].
    Mint {
        /// A kind of token that the binding grants.
        kind: String,
        /// Bootstrap tokens: the groups of whoever joins.
        groups: Vec<String>,
        /// How long it is of use.
        ttl: Duration,
        /// How many tokens of the owner may be of use at a time, this one included.
        count: u32,
        /// The primary's uid: nobody else may use it.
        owner: String,
    },
    /// Make a token useless. Reply: [`Reply::Answer`] with an empty object, also if it is gone already.
    Revoke {
        /// The token.
        token: SecretRef,
        /// The primary's uid: what was minted for another one stays.
        owner: String,
    },
    /// Write to the cluster. Reply: [`Reply::Objects`] with the object as it stands then, none if it is gone.
    Write(Write),
    /// Write the lease, or with none only read it. Reply: [`Reply::Lease`].
    Lease(Option<LeaseWrite>),
}

/// On whose behalf a cloud is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Session {
    /// The cloud's name in the binding.
    pub cloud: String,
    /// The handle of a credential; none for the binding's default session.
    pub handle: Option<String>,
    /// The primary's uid: stamped on what is created, compared on everything else.
    pub owner: String,
    /// The tenant that the primary belongs to.
    pub tenant: String,
    /// The primary's namespace, where sealed references are looked up; none for cluster-scoped kinds.
    pub namespace: Option<String>,
}

/// An operation of a cloud's catalogue to be performed once.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudRequest {
    /// On whose behalf.
    pub session: Session,
    /// `vm.clone`
    pub operation: String,
    /// As the policy gave them; sealed references are resolved by the adapter.
    pub arguments: Value,
    /// Creates: the key of the pending entry, a client token where the cloud has one. None while it is prepared.
    pub key: Option<String>,
}

/// Where something is created, and as whom: what is looked for there by another principal may be hidden from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// First what the server says it is, never an address or a name that somebody gave it; then what says where in it.
    pub place: Vec<String>,
    /// As whom, in the server's words.
    pub principal: String,
}

impl Site {
    /// Whether what was entered here is found, and made, at `other`: the same server and principal. What says where within
    /// the server is known of what was entered only.
    pub fn is_at(&self, other: &Site) -> bool {
        self.principal == other.principal && self.place.starts_with(&other.place)
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "in {} by {}", self.place.join("/"), self.principal)
    }
}

/// A create that has read all that it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Where it will create, and as whom.
    pub site: Site,
    /// What the cloud wants back with [`Commit`]. It holds no secret.
    pub ready: Json,
}

/// The one request of a create.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// As it was prepared, with its key.
    pub request: CloudRequest,
    /// What it was prepared as.
    pub prepared: Prepared,
}

/// A create that was or may have been performed: an element of the primary's `status.pending`. An entry with a field
/// that this host does not know is a newer host's: it is not read as if it were one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PendingEntry {
    /// `vm.clone`
    pub operation: String,
    /// The service that it is an operation of, with its major version: `vm@1`.
    pub service: String,
    /// What is being created.
    pub intent: String,
    /// Made when this entry was written.
    pub key: String,
    /// How the cloud marks what it creates and finds it again: [`Catalogue::stamp`](crate::catalogue::Catalogue::stamp).
    pub stamp: u32,
    /// Where it is created: [`Site::place`].
    pub place: Vec<String>,
    /// As whom: [`Site::principal`].
    pub principal: String,
    /// When it was written.
    pub since: Unix,
    /// For how long hosts have known of it, by a clock that does not jump: another host need not wait again until
    /// everybody would see what was created.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "as_millis")]
    pub waited: Duration,
}

impl PendingEntry {
    /// Where it is created, and as whom.
    pub fn site(&self) -> Site {
        Site {
            place: self.place.clone(),
            principal: self.principal.clone(),
        }
    }
}

/// A write to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// JSON merge patch.
    Patch {
        /// The object that is meant.
        object: ObjectRef,
        /// `status`, or none.
        subresource: Option<String>,
        /// What it must still be; none where nobody looked at it.
        precondition: Option<Precondition>,
        /// What is to be different.
        patch: Value,
    },
    /// An act of a policy on another object.
    Act(Act),
    /// A Kubernetes Event; failures are only logged.
    Event {
        /// On which object.
        object: ObjectRef,
        /// Its uid.
        uid: String,
        /// What happened.
        event: crate::contract::Event,
        /// When.
        now: Unix,
    },
}

/// A write of the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWrite {
    /// Who writes; empty gives the lease up.
    pub holder: String,
    /// How long the holder may go without renewing.
    #[serde(with = "as_millis")]
    pub duration: Duration,
    /// The version it was read at; none creates it.
    pub version: Option<String>,
    /// How often the lease changed hands.
    pub transitions: u64,
    /// For people: nobody decides by it.
    pub now: Unix,
}

/// The lease as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRead {
    /// Who holds it; empty when nobody.
    pub holder: String,
    /// How long the holder may go without renewing.
    #[serde(with = "as_millis")]
    pub duration: Duration,
    /// `resourceVersion`: it changes with each renewal.
    pub version: String,
    /// How often it changed hands.
    pub transitions: u64,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Of [`Call::Step`].
    Stepped(Stepped),
    /// Of [`Call::Decide`]: how long to wait, or how the retry policy broke its contract.
    Decided(Result<Wait, crate::fault::Fault>),
    /// Of everything that answers with what is no object of the cluster.
    Answer(Answer),
    /// Of reads and writes of the cluster: what stands there.
    Objects(Found),
    /// Of [`Call::Render`].
    Rendered(Rendered),
    /// Of [`Call::Prepare`]: why it cannot be, or what it found.
    Prepared(Result<Prepared, Failure>),
    /// Of [`Call::Resolve`].
    Resolved(Resolution),
    /// Of [`Call::Lease`]: the lease as it stands, none if it does not exist, or why it cannot be said.
    Lease(Result<Option<LeaseRead>, Failure>),
}

/// Objects as an API server answered them, or why it did not.
pub type Found = Result<Vec<Object>, Failure>;

impl Reply {
    /// What an API server answered: a list, an object, or what is none.
    pub fn objects(answer: Answer) -> Self {
        Reply::Objects(answer.map(|answer| match answer {
            Value::Array(items) => items.into_iter().map(Object::new).collect(),
            Value::Object(object) if object.get("metadata").is_some_and(Value::is_object) => {
                vec![Object::new(Value::Object(object))]
            }
            _ => Vec::new(),
        }))
    }
}

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    /// Which kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// None watches every namespace, or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// One object by name.
    pub name: Option<String>,
    /// Pods of one node: `spec.nodeName`.
    pub node: Option<String>,
    /// Dotted paths that are kept of each object; empty keeps all.
    pub fields: Vec<String>,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind.kind)?;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}")?,
            (None, Some(name)) => write!(f, " {name}")?,
            (Some(namespace), None) => write!(f, " in {namespace}")?,
            (None, None) => {}
        }
        self.node.as_ref().map_or(Ok(()), |node| write!(f, " on {node}"))
    }
}

/// What a watch says.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// Everything in scope, at this moment: after the first list and after each relist.
    Listed {
        /// What there is.
        objects: Vec<Object>,
        /// The list's own version; what is missing and older than it is gone.
        version: crate::object::ResourceVersion,
    },
    /// An object appeared or changed.
    Applied(Object),
    /// An object is gone; it carries the version of its deletion.
    Deleted(Object),
    /// The watch cannot say now: answers from its cache may be old.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_is_found_by_the_same_principal_at_the_same_server() {
        let site = |place: &[&str], principal: &str| Site {
            place: place.iter().map(|part| (*part).to_owned()).collect(),
            principal: principal.into(),
        };
        let entered = site(&["server", "folder"], "host");
        assert!(entered.is_at(&site(&["server"], "host")));
        assert!(!entered.is_at(&site(&["server"], "another")));
        assert!(!entered.is_at(&site(&["another"], "host")));
        assert!(!site(&["server"], "host").is_at(&entered));
    }

    #[test]
    fn an_answer_without_metadata_is_no_object() {
        let count = |answer: Value| match Reply::objects(Ok(answer)) {
            Reply::Objects(Ok(found)) => found.len(),
            reply => panic!("{reply:?}"),
        };
        assert_eq!(count(json!([{"metadata": {}}, {"metadata": {}}])), 2);
        assert_eq!(count(json!({"metadata": {"name": "a"}})), 1);
        assert_eq!(count(json!({"kind": "Status"})), 0);
        assert_eq!(count(json!({"metadata": null})), 0);
        assert_eq!(count(json!("gone")), 0);
    }
}
