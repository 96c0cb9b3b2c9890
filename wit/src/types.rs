//! The types of `types.wit` and `policy.wit`, which document them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Document;

/// A JSON document as text, shared.
pub type Json = Arc<str>;

/// The answer to a request: a value or a failure.
pub type Answer = Result<serde_json::Value, Failure>;

/// A kind of the cluster's API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind, as in manifests.
    pub kind: String,
}

/// The name of an object of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Another cluster; `None` is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The kind of the object.
    #[serde(flatten)]
    pub kind: Kind,
    /// The namespace; `None` for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
}

/// The canonical status codes of gRPC. `ERRORS.md` lists which error becomes which code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

impl Code {
    /// The code as the contract writes it: `not-found`.
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

/// The effect that a failed request may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing was changed.
    None,
    /// The request may have been performed.
    Unknown,
}

/// The reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The code of the failure.
    pub code: Code,
    /// The message for people: what failed, on which object.
    pub message: String,
    /// What the request may have done.
    pub effect: Effect,
    /// Milliseconds until the earliest sensible next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The operation that failed, if the host knows it: `vm.clone`, `patch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Further details from the other side, as JSON: the `details` of an API server's `Status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Json>,
}

impl Failure {
    /// A failure that changed nothing.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure {
            code,
            message: message.into(),
            effect: Effect::None,
            retry_after: None,
            operation: None,
            detail: None,
        }
    }

    /// The same failure, with this operation if it has none.
    pub fn of(mut self, operation: &str) -> Self {
        self.operation.get_or_insert_with(|| operation.to_owned());
        self
    }

    /// The same failure, for a request that may have been performed.
    pub fn effect_unknown(self) -> Self {
        Failure {
            effect: Effect::Unknown,
            ..self
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

/// The handle that answers a credential ask with the plan `null`. Every cloud refuses it.
pub const NO_SESSION: &str = "none";

/// Asks for one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectQuery {
    /// The object to read.
    pub object: ObjectRef,
    /// Dotted paths of the fields to keep. An empty list keeps all fields.
    pub projection: Vec<String>,
    /// Whether to read from the API server and not from the watch cache.
    pub latest: bool,
}

/// The name of an object within its kind and cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName {
    /// The namespace; `None` for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `metadata.name`
    pub name: String,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Page {
    /// The page begins after this object; `None` begins at the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ObjectName>,
    /// The most objects of the page.
    pub size: u32,
}

/// Asks for the objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListQuery {
    /// Another cluster; `None` is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The kind of the objects.
    #[serde(flatten)]
    pub kind: Kind,
    /// The namespace; `None` asks for all namespaces that the grant reaches.
    pub namespace: Option<String>,
    /// Kubernetes label selector.
    pub label_selector: Option<String>,
    /// Kubernetes field selector.
    pub field_selector: Option<String>,
    /// Dotted paths of the fields to keep. An empty list keeps all fields.
    pub projection: Vec<String>,
    /// If there are more objects than this, the answer is `resource-exhausted`. 0 means the host's limit.
    pub limit: u32,
    /// A part of the list; `None` asks for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// Whether to read from the API server and not from the watch cache.
    pub latest: bool,
}

impl ListQuery {
    /// Asks for all objects of a kind that the grant reaches, from the watch cache.
    pub fn all(kind: Kind) -> Self {
        ListQuery {
            cluster: None,
            kind,
            namespace: None,
            label_selector: None,
            field_selector: None,
            projection: Vec::new(),
            limit: 0,
            page: None,
            latest: false,
        }
    }
}

/// The dotted paths that identify an object. A projection keeps them, whatever else it names.
pub const IDENTITY: [&str; 6] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
];

/// Asks a cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CloudCall {
    /// An operation of the catalogue whose effect is `read`.
    pub operation: String,
    /// The arguments as JSON.
    pub arguments: Document,
}

/// A question. Answering it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Question {
    Object(ObjectQuery),
    Objects(ListQuery),
    Secret(ObjectRef),
    Cloud(CloudCall),
    Lock(String),
    Credential(Document),
    Reachable(Option<String>),
}

impl Question {
    /// The operation, as failures and recordings name it: that of a cloud, or the kind of question to the
    /// cluster.
    pub fn operation(&self) -> &str {
        match self {
            Question::Object(_) => "object",
            Question::Objects(_) => "objects",
            Question::Secret(_) => "secret",
            Question::Cloud(call) => &call.operation,
            Question::Lock(_) => "lock",
            Question::Credential(_) => "credential",
            Question::Reachable(_) => "reachable",
        }
    }
}

/// A question with the round in which it is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// 0 unless the policy looks again after an act.
    pub round: u32,
    /// The question.
    pub question: Question,
}

/// Performs a `change` or `create` operation of a cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CloudAct {
    /// `vm.clone`
    pub operation: String,
    /// The arguments as JSON.
    pub arguments: Document,
    /// For creates only: the name of what is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
}

/// What must still be true of another object when an act reaches it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Precondition {
    /// `metadata.uid`
    pub uid: String,
    /// The version that this pass saw; `None` if it did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// Patches another object with a JSON merge patch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPatch {
    /// The object to patch.
    pub object: ObjectRef,
    /// The precondition.
    pub precondition: Precondition,
    /// `status`; `None` for the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// JSON merge patch.
    pub patch: Document,
}

/// Deletes another object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDelete {
    /// The object to delete.
    pub object: ObjectRef,
    /// The precondition.
    pub precondition: Precondition,
    /// The grace period in seconds; `None` is the default of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// `Background`, `Foreground` or `Orphan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation_policy: Option<String>,
}

/// Evicts a Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// The Pod.
    pub object: ObjectRef,
    /// The precondition.
    pub precondition: Precondition,
    /// The grace period in seconds; `None` is that of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
}

/// Creates an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectCreate {
    /// Another cluster; `None` is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The object as JSON, with a fixed `metadata.name`.
    pub object: Document,
}

/// Mints a token in the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mint {
    /// Another cluster; `None` is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// A kind of token that the binding grants.
    pub kind: String,
    /// The lifetime in milliseconds.
    pub ttl: u64,
}

/// An act: something to be done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Act {
    Cloud(CloudAct),
    Create(ObjectCreate),
    Patch(ObjectPatch),
    Delete(ObjectDelete),
    Evict(Eviction),
    Mint(Mint),
    Revoke(Document),
}

impl Act {
    /// Creates an object in the primary's own cluster.
    pub fn create(object: impl Into<Document>) -> Self {
        Act::Create(ObjectCreate {
            cluster: None,
            object: object.into(),
        })
    }

    /// The operation, as failures and recordings name it: that of a cloud, or the kind of act on the cluster.
    pub fn operation(&self) -> &str {
        match self {
            Act::Cloud(act) => &act.operation,
            Act::Create(_) => "create",
            Act::Patch(_) => "patch",
            Act::Delete(_) => "delete",
            Act::Evict(_) => "evict",
            Act::Mint(_) => "mint",
            Act::Revoke(_) => "revoke",
        }
    }

    /// The bytes of its texts and documents, which count in the journal.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Act::Cloud(act) => act.operation.len() + act.arguments.bytes() + bytes_of(&act.intent),
            Act::Create(act) => bytes_of(&act.cluster) + act.object.bytes(),
            Act::Patch(act) => act.object.bytes() + act.patch.bytes() + bytes_of(&act.subresource),
            Act::Delete(act) => act.object.bytes() + bytes_of(&act.propagation_policy),
            Act::Evict(act) => act.object.bytes(),
            Act::Mint(act) => bytes_of(&act.cluster) + act.kind.len(),
            Act::Revoke(token) => token.bytes(),
        };
        (bytes + size_of::<Request>()) as u64
    }
}

/// The requests of a step: questions or acts, never both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Requests {
    Asks(Vec<Ask>),
    Acts(Vec<Act>),
}

impl Requests {
    /// The number of requests.
    pub fn len(&self) -> usize {
        match self {
            Requests::Asks(asks) => asks.len(),
            Requests::Acts(acts) => acts.len(),
        }
    }

    /// Whether there are no requests, which no step may return.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of their texts, which count in the journal.
    pub fn bytes(&self) -> u64 {
        match self {
            Requests::Asks(asks) => asks.iter().map(Ask::bytes).sum(),
            Requests::Acts(acts) => acts.iter().map(Act::bytes).sum(),
        }
    }
}

impl FromIterator<Request> for Requests {
    /// The requests of a step with these questions and acts. If there are questions, the acts come later.
    fn from_iter<I: IntoIterator<Item = Request>>(requests: I) -> Self {
        let (mut asks, mut acts) = (Vec::new(), Vec::new());
        for request in requests {
            match request {
                Request::Ask(ask) => asks.push(ask),
                Request::Act(act) => acts.push(act),
            }
        }
        if asks.is_empty() {
            Requests::Acts(acts)
        } else {
            Requests::Asks(asks)
        }
    }
}

/// A question or an act.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Request {
    Ask(Ask),
    Act(Act),
}

impl Request {
    /// The operation, as failures and recordings name it: [`Question::operation`], [`Act::operation`].
    pub fn operation(&self) -> &str {
        match self {
            Request::Ask(ask) => ask.question.operation(),
            Request::Act(act) => act.operation(),
        }
    }

    /// The bytes of its texts and documents, which count in the journal.
    pub fn bytes(&self) -> u64 {
        match self {
            Request::Ask(ask) => ask.bytes(),
            Request::Act(act) => act.bytes(),
        }
    }
}

impl Ask {
    /// The bytes of its texts and documents, which count in the journal.
    pub fn bytes(&self) -> u64 {
        let texts = |texts: &[String]| -> usize {
            let each = texts.iter().map(|text| text.len() + size_of::<String>());
            each.sum()
        };
        let bytes = match &self.question {
            Question::Object(query) => query.object.bytes() + texts(&query.projection),
            Question::Objects(query) => {
                let selectors = bytes_of(&query.label_selector) + bytes_of(&query.field_selector);
                let kind = query.kind.api_version.len() + query.kind.kind.len();
                let after = query.page.as_ref().and_then(|page| page.after.as_ref());
                let after = after.map_or(0, |after| bytes_of(&after.namespace) + after.name.len());
                let place = bytes_of(&query.cluster) + bytes_of(&query.namespace) + after;
                kind + place + selectors + texts(&query.projection)
            }
            Question::Secret(secret) => secret.bytes(),
            Question::Cloud(call) => call.operation.len() + call.arguments.bytes(),
            Question::Lock(name) => name.len(),
            Question::Credential(plan) => plan.bytes(),
            Question::Reachable(cluster) => bytes_of(cluster),
        };
        (bytes + size_of::<Request>()) as u64
    }
}

impl ObjectRef {
    fn bytes(&self) -> usize {
        let place = bytes_of(&self.cluster) + bytes_of(&self.namespace) + self.name.len();
        self.kind.api_version.len() + self.kind.kind.len() + place
    }
}

fn bytes_of(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, String::len)
}

/// One request of a pass with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The request.
    pub request: Request,
    /// The answer as JSON, or the failure.
    pub answer: Result<Json, Failure>,
}

/// The result of a create whose answer was lost, as the cloud tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// The create was performed. This is the answer that it would have had.
    Done(Json),
    /// The create was not performed and will not be.
    Absent,
    /// The cloud cannot tell yet, for this reason.
    Unknown(String),
}

impl Resolution {
    /// The cloud cannot tell yet, for this reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Resolution::Unknown(why.into())
    }

    /// Whether the cloud cannot tell yet.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Resolution::Unknown(_))
    }
}

/// A create found in `status.pending` at the start of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ActInDoubt {
    /// `vm.clone`
    pub operation: String,
    /// The name of what is created.
    pub intent: String,
    /// When the entry was written, in Unix milliseconds.
    pub since: u64,
    /// The result, as the cloud tells it.
    pub resolution: Resolution,
}

/// Why a pass runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The object appeared.
    Created,
    /// The object's own content changed.
    Changed,
    /// The object is being deleted.
    Deleted,
    /// The time that the last pass asked for has come.
    Due,
    /// An answer that the last pass used has changed: that of this object, if it was a single object.
    Dependency(Option<ObjectRef>),
    /// A lock that was busy is free now.
    Lock(String),
    /// The host restarted or listed again.
    Resync,
    /// A `request.polity.dev/` annotation changed.
    Requested,
    /// The binding or its policies changed.
    Binding,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Created => f.write_str("created"),
            Cause::Changed => f.write_str("changed"),
            Cause::Deleted => f.write_str("deleted"),
            Cause::Due => f.write_str("due"),
            Cause::Dependency(None) => f.write_str("dependency"),
            Cause::Dependency(Some(object)) => write!(f, "{} {} changed", object.kind.kind, object.name),
            Cause::Lock(name) => write!(f, "the lock {name} is free"),
            Cause::Resync => f.write_str("resync"),
            Cause::Requested => f.write_str("requested"),
            Cause::Binding => f.write_str("binding"),
        }
    }
}

/// One evaluation of one object, as a step gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// The primary object.
    pub object: Option<Json>,
    /// Unix milliseconds.
    pub now: u64,
    /// The causes of the pass.
    pub causes: Vec<Cause>,
    /// How many passes in a row ended in `retry` with a failure before this one.
    pub attempt: u32,
    /// The policy's configuration.
    pub config: Json,
    /// Creates in doubt.
    pub pending: Vec<ActInDoubt>,
    /// The requests of this pass so far, with their answers.
    pub journal: Vec<Entry>,
}

/// The kind of wait of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum RetryClass {
    Conflict,
    Short,
    Medium,
    Long,
}

/// When an object gets its next pass. Durations are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Next {
    Settled(Option<u64>),
    After(u64),
    Retry {
        class: RetryClass,
        failure: Option<Failure>,
    },
}

/// As in Kubernetes Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum EventType {
    Normal,
    Warning,
}

/// A Kubernetes Event on the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: EventType,
    /// The reason in CamelCase, for programs.
    pub reason: String,
    /// The message for people.
    pub message: String,
}

/// The end of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// A JSON merge patch against the primary as the pass got it.
    pub patch: Option<Document>,
    /// Kubernetes Events, which the host writes when something changes from pass to pass.
    pub events: Vec<Event>,
    /// The edge ids of the workflow that the pass took.
    pub notes: Vec<String>,
    /// When the object gets its next pass.
    pub next: Next,
    /// The indices of the journal entries on which the conclusion rests.
    pub used: Vec<u32>,
}

/// Whether the lifecycle policy may act, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub enum Verdict {
    Granted(String),
    Denied,
    Released,
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Requests to be answered before the next step.
    Pending(Requests),
    /// The end of the pass. The verdict is present only for the identity role.
    Concluded {
        /// The verdict of the identity role.
        verdict: Option<Verdict>,
        /// The conclusion of both roles.
        conclusion: Conclusion,
    },
}

/// The origin of the pass's end that is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub enum Origin {
    Identity,
    Lifecycle,
    Conflict,
    Publication,
}

/// What the retry role is asked. Durations are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub struct RetryRequest {
    #[serde(flatten)]
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub origin: Origin,
    pub class: RetryClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    pub attempt: u32,
    pub failing_for: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_wait: Option<u64>,
    pub seed: u64,
    pub config: Json,
}

impl RetryRequest {
    /// The milliseconds that the other side wants to be left alone.
    pub fn retry_after(&self) -> Option<u64> {
        self.failure.as_ref().and_then(|failure| failure.retry_after)
    }
}

/// The answer of the retry role. Durations are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Wait this many milliseconds, unless something new is wanted.
    After(u64),
    /// Wait until something changes, at the latest for this long.
    OnChange(Option<u64>),
}

/// The role of a policy: the question that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Which principal may act for an object?
    Identity,
    /// Which action next?
    Lifecycle,
    /// How long until the next try?
    Retry,
}

impl Role {
    /// The role as bindings spell it: `lifecycle`.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Identity => "identity",
            Role::Lifecycle => "lifecycle",
            Role::Retry => "retry",
        }
    }
}

/// A kind that stands alone. Where a kind is part of a longer record, its neighbours are fields of that record; here
/// they would be demands that nobody meets.
#[derive(Deserialize, JsonSchema)]
#[serde(rename = "Kind", rename_all = "camelCase", deny_unknown_fields)]
#[schemars(description = "A kind of the cluster's API.")]
struct KindAlone {
    /// `v1`, or `group/version`.
    api_version: String,
    /// The kind, as in manifests.
    kind: String,
}

impl From<KindAlone> for Kind {
    fn from(alone: KindAlone) -> Self {
        Kind {
            api_version: alone.api_version,
            kind: alone.kind,
        }
    }
}

fn alone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    KindAlone::deserialize(deserializer).map(Kind::from)
}

fn each_alone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Kind>, D::Error> {
    let all = Vec::<KindAlone>::deserialize(deserializer)?;
    Ok(all.into_iter().map(Kind::from).collect())
}

/// A kind of request that a policy needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Look at objects of a kind.
    #[serde(deserialize_with = "alone")]
    Objects(#[schemars(with = "KindAlone")] Kind),
    /// See that Secrets exist, with their key names.
    Secrets,
    /// Perform a cloud operation, for example `vm.get`.
    Cloud(String),
    /// Hold a lock of this name. A name that ends in `*` is a prefix.
    Lock(String),
    /// Ask for credentials.
    Credential,
    /// Create objects of a kind.
    #[serde(deserialize_with = "alone")]
    Create(#[schemars(with = "KindAlone")] Kind),
    /// Patch objects of a kind.
    #[serde(deserialize_with = "alone")]
    Patch(#[schemars(with = "KindAlone")] Kind),
    /// Delete objects of a kind.
    #[serde(deserialize_with = "alone")]
    Delete(#[schemars(with = "KindAlone")] Kind),
    /// Evict Pods.
    Evict,
    /// Mint tokens of this kind, and revoke them.
    Mint(String),
    /// Ask whether an API server answers.
    Reachable,
}

/// An edge of the workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edge {
    /// The id of the edge, for example `CAPV-05`.
    pub id: String,
    /// The meaning of the edge in one sentence. In parentheses if it only says how the flow goes on: then a person is shown
    /// the edge before it.
    pub meaning: String,
    /// The source from which the host derives the edge; none for an edge that the policy notes itself. A source is
    /// `started`, `published`, `requeued`, `failed`, `succeeded`, `concluded` or another id. Several are separated
    /// by spaces; each of them will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<String>,
}

impl Edge {
    /// An edge that the policy notes itself.
    pub fn noted(id: &str, meaning: &str) -> Edge {
        Edge {
            id: id.to_owned(),
            meaning: meaning.to_owned(),
            derived_from: None,
        }
    }

    /// An edge that the host derives. `from` is `started`, `published`, `requeued`, `failed`, `succeeded`,
    /// `concluded` or another id. Several are separated by spaces; each of them will do.
    pub fn derived(id: &str, meaning: &str, from: &str) -> Edge {
        Edge {
            derived_from: Some(from.to_owned()),
            ..Edge::noted(id, meaning)
        }
    }

    /// The edges of a table, one in a line: its id, its meaning and, if the host derives it, its source,
    /// separated by tabs. Lines that begin with `#` are remarks.
    pub fn table(text: &str) -> impl Iterator<Item = Edge> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| {
            let mut fields = line.split('\t');
            let mut field = || fields.next().unwrap_or_default();
            match (field(), field(), field()) {
                (id, meaning, "") => Edge::noted(id, meaning),
                (id, meaning, from) => Edge::derived(id, meaning, from),
            }
        })
    }
}

/// The manifest of a policy: what it is, needs and writes. `describe` answers it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The name of the policy.
    pub name: String,
    /// The version of the policy.
    pub version: String,
    /// The role of the policy.
    pub role: Role,
    /// The kinds that it can govern. An empty list means all kinds.
    #[serde(default, deserialize_with = "each_alone")]
    #[schemars(with = "Vec<KindAlone>")]
    pub governs: Vec<Kind>,
    /// The requests that it needs. The binding must grant each of them.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The dotted paths of the primary that it writes. Conditions are named by type: `status.conditions[Ready]`.
    #[serde(default)]
    pub writes: Vec<String>,
    /// The JSON Schema of its configuration, without references. A host refuses a keyword that it does not know.
    #[serde(default)]
    pub config_schema: serde_json::Value,
    /// The finalizer that the host adds to an object before the first act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// The CustomResourceDefinition of its kind, or one `List` with those of several kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crd: Option<serde_json::Value>,
    /// The edges of its workflow, which its notes name.
    #[serde(default)]
    pub edges: Vec<Edge>,
}

impl Manifest {
    /// The CustomResourceDefinitions of its kinds. Several are in one `List`.
    pub fn crds(&self) -> impl Iterator<Item = &serde_json::Value> {
        let several = |crd: &serde_json::Value| crd["kind"] == "List";
        let items = self.crd.iter().filter(move |crd| several(crd));
        let items = items.flat_map(|list| list["items"].as_array().into_iter().flatten());
        self.crd.iter().filter(move |crd| !several(crd)).chain(items)
    }
}
