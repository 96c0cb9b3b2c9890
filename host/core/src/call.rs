//! Calls of core and their replies. The engine turns each call into a future, and its reply into an input.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::binding::{Limits, PolicyId};
use crate::catalogue::SecretRef;
use crate::contract::{
    Act, Answer, Document, Failure, Json, ObjectRef, Precondition, Question, Resolution, RetryRequest, Role,
    Wait,
};
pub use crate::entry::{ManualResolution, PendingEntry, Site};
use crate::object::Object;
pub use crate::scope::{Scope, WatchEvent};
use crate::time::{Boot, Unix, as_millis};
use crate::worker::{Draft, DraftInput, StepInput, StepReply};

/// The number of a call. Its reply carries the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// The last moment at which a change may begin, so that it ends while this host holds the lease. Whoever writes a request looks
/// right before its first byte.
#[derive(Clone)]
pub struct Fence {
    begin_by: Boot,
    clock: Arc<dyn Fn() -> Boot + Send + Sync>,
    /// Whether a request was held back.
    refused: Arc<AtomicBool>,
}

impl Fence {
    /// A fence that closes at this moment of a clock that counts suspends.
    pub fn new(begin_by: Boot, clock: impl Fn() -> Boot + Send + Sync + 'static) -> Self {
        Fence {
            begin_by,
            clock: Arc::new(clock),
            refused: Arc::default(),
        }
    }

    /// The same fence for one more request, of which it says whether that one was held back.
    #[must_use]
    pub fn of_request(&self) -> Self {
        Fence {
            refused: Arc::default(),
            ..self.clone()
        }
    }

    /// Whether a change may begin now.
    pub fn is_open(&self) -> bool {
        (self.clock)() < self.begin_by
    }

    /// Notes that a request was held back.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether a request was held back. Then it had no effect, whatever its error says.
    pub fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fence({:?})", self.begin_by)
    }
}

/// A token to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mint {
    /// The kind of token. The binding grants it.
    pub kind: String,
    /// For bootstrap tokens: the groups of the joining node.
    pub groups: Vec<String>,
    /// How long the token is valid.
    pub ttl: Duration,
    /// The most valid tokens of the owner, including this one.
    pub count: u32,
    /// The uid of the primary. No other object may use the token.
    pub owner: String,
}

/// A request of core to the outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Calls a policy. Reply: [`Reply::Stepped`].
    Step {
        /// The policy.
        policy: PolicyId,
        /// The role for which the policy is called.
        role: Role,
        /// The snapshot, and the journal so far.
        input: Arc<StepInput>,
        /// The limits of the binding.
        limits: Limits,
    },
    /// Asks the retry policy. Reply: [`Reply::Decided`].
    Decide {
        /// The retry policy.
        policy: PolicyId,
        /// The failed pass, as the retry policy sees it.
        request: RetryRequest,
        /// The limits of the binding.
        limits: Limits,
    },
    /// Reads or changes something in a cloud. Reply: [`Reply::Answer`].
    Cloud(CloudRequest),
    /// Reads everything that a create needs, before its entry is written. It changes nothing. Reply:
    /// [`Reply::Prepared`].
    Prepare(CloudRequest),
    /// Sends a create that was prepared and entered: one request. Reply: [`Reply::Answer`].
    Commit(Commit),
    /// Asks for the outcome of a create in doubt. Reply: [`Reply::Resolved`].
    Resolve {
        /// The cloud, and on whose behalf it is called.
        session: Session,
        /// The entry in doubt.
        entry: PendingEntry,
    },
    /// Builds or fetches a session. Reply: [`Reply::Answer`] with `{handle, reused, attributes}`.
    Credential {
        /// The name of the cloud.
        cloud: String,
        /// The uid of the primary: a handle is valid for this object only.
        owner: String,
        /// The plan of the identity policy.
        plan: Document,
    },
    /// Reads from the API server: for `object` and `objects` the reply is [`Reply::Objects`] with whole objects, for
    /// `secret` and `reachable` it is [`Reply::Answer`].
    Read(Question),
    /// Drafts the writes of a publication. Reply: [`Reply::Drafted`].
    Draft(Box<DraftInput>),
    /// Makes a token. Reply: [`Reply::Answer`].
    Mint(Mint),
    /// Revokes a token. Reply: [`Reply::Answer`] with an empty object, also if the token does not exist any more.
    Revoke {
        /// The token.
        token: SecretRef,
        /// The uid of the primary. Tokens of other objects stay valid.
        owner: String,
    },
    /// Writes to the cluster. Reply: [`Reply::Objects`] with the object after the write, or with no object if it is
    /// gone.
    Write(Write),
    /// Writes the lease, or only reads it if there is no write. Reply: [`Reply::Lease`].
    Lease(Option<LeaseWrite>),
}

/// The party on whose behalf a cloud is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Session {
    /// The name of the cloud in the binding.
    pub cloud: String,
    /// The handle of a credential; `None` for the default session of the binding.
    pub handle: Option<String>,
    /// The uid of the primary. New cloud resources get it as a mark, and it is compared before changes of existing
    /// ones.
    pub owner: String,
    /// The tenant of the primary.
    pub tenant: String,
    /// The tenant queue of the call: what its binding and tenant have in common. Where calls wait, the queues take turns.
    #[serde(default)]
    pub tenant_queue: Arc<str>,
    /// The namespace of the primary, in which sealed references are looked up; `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
}

/// One call of an operation of a cloud's catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudRequest {
    /// The session of the call.
    pub session: Session,
    /// `vm.clone`
    pub operation: String,
    /// The arguments of the policy. The adapter resolves sealed references.
    pub arguments: Value,
    /// For creates: the key of the pending entry, which is also the client token if the cloud has one. `None` while
    /// the create is prepared.
    pub key: Option<String>,
}

/// A create that has read everything it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preparation {
    /// The place and the principal of the create.
    pub site: Site,
    /// Data of the cloud that it gets back with [`Commit`]. It contains no secret.
    pub ready: Json,
}

/// The single request of a create.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The prepared request, with its key.
    pub request: CloudRequest,
    /// The result of the preparation.
    pub prepared: Preparation,
}

/// A write to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A JSON merge patch.
    Patch {
        /// The object to write.
        object: ObjectRef,
        /// `status`, or `None`.
        subresource: Option<String>,
        /// The expected uid and version; `None` if nobody has read the object.
        precondition: Option<Precondition>,
        /// The merge patch.
        patch: Value,
    },
    /// An act of a policy on another object.
    Act(Act),
    /// A Kubernetes Event; failures are only logged.
    Event {
        /// The object that the Event concerns.
        object: ObjectRef,
        /// The uid of that object.
        uid: String,
        /// The Event.
        event: crate::contract::Event,
        /// The time of the Event.
        now: Unix,
    },
}

/// A write of the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWrite {
    /// The new holder. An empty name gives the lease up.
    pub holder: String,
    /// The time after which the lease expires without a renewal.
    #[serde(with = "as_millis")]
    pub duration: Duration,
    /// The expected version; `None` creates the lease.
    pub version: Option<String>,
    /// How often the lease changed hands.
    pub transitions: u64,
    /// The time of the write, for people only. No host decides by it.
    pub now: Unix,
}

/// The lease as an API server returned it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRead {
    /// The holder; empty if there is none.
    pub holder: String,
    /// The time after which the lease expires without a renewal.
    #[serde(with = "as_millis")]
    pub duration: Duration,
    /// `resourceVersion`: it changes with each renewal.
    pub version: String,
    /// How often the lease changed hands.
    pub transitions: u64,
}

/// The reply of a call.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub enum Reply {
    /// Reply of [`Call::Step`].
    Stepped(StepReply),
    /// Reply of [`Call::Decide`]: the wait, or the fault of the retry policy.
    Decided(Result<Wait, crate::fault::Fault>),
    /// Reply of calls whose answers are no objects of the cluster.
    Answer(Answer),
    /// Reply of reads and writes of the cluster: the objects as they are now.
    Objects(ReadResult),
    /// Reply of [`Call::Draft`]: the writes, or why the host failed.
    Drafted(Result<Draft, Failure>),
    /// Reply of [`Call::Prepare`]: what the create needs, or why it cannot be made.
    Prepared(Result<Preparation, Failure>),
    /// Reply of [`Call::Resolve`].
    Resolved(Resolution),
    /// Reply of [`Call::Lease`]: the lease, `None` if it does not exist, or why it is not known.
    Lease(Result<Option<LeaseRead>, Failure>),
}

/// The objects in an answer of an API server, or its failure.
pub type ReadResult = Result<Vec<Object>, Failure>;

impl Reply {
    /// The reply with an answer of an API server: a list, an object, or no object.
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
        assert_eq!(entered.to_string(), "in server/folder by host");
    }

    #[test]
    fn a_role_is_one_principal_in_all_its_sessions() {
        let site = |principal: &str| Site {
            place: vec!["aws".into()],
            principal: principal.into(),
        };
        let entered = site("arn:aws:sts::111122223333:assumed-role/polity/i-0123");
        for (other, is_same) in [
            ("arn:aws:sts::111122223333:assumed-role/polity/i-0456", true),
            ("arn:aws:sts::111122223333:assumed-role/polity", true),
            ("arn:aws:sts::111122223333:assumed-role/admin/i-0123", false),
            ("arn:aws:sts::999922223333:assumed-role/polity/i-0123", false),
            ("arn:aws-cn:sts::111122223333:assumed-role/polity/i-0123", false),
            ("arn:aws:iam::111122223333:user/polity/i-0123", false),
        ] {
            assert_eq!(entered.is_at(&site(other)), is_same, "{other}");
            assert_eq!(site(other).is_at(&entered), is_same, "{other}");
        }
        let user = |name: &str| site(&format!("arn:aws:iam::111122223333:user/path/{name}"));
        assert!(!user("a").is_at(&user("b")), "a user has a path and no session");
        assert_eq!(
            site("arn:aws:sts::1:assumed-role/polity").who(),
            "arn:aws:sts::1:assumed-role/polity"
        );
    }

    #[test]
    fn a_fence_says_of_each_request_whether_it_was_held_back() {
        let fence = Fence::new(Boot(5), || Boot(4));
        let (one, other) = (fence.of_request(), fence.of_request());
        one.refuse();
        assert_eq!(
            [&fence, &one, &other].map(Fence::has_refused),
            [false, true, false]
        );
        assert!(fence.is_open() && !Fence::new(Boot(4), || Boot(4)).is_open());
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
