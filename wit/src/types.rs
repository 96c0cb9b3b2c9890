//! The types of `types.wit` and `policy.wit`, which document them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Document;

/// A JSON document as text, shared.
pub type Json = Arc<str>;

/// What a request got: a value, or a failure.
pub type Answer = Result<serde_json::Value, Failure>;

/// A kind of the cluster's API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind, as written in manifests.
    pub kind: String,
}

/// Names one object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Another cluster; none is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Its kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// None for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
}

/// The canonical status codes of gRPC; `ERRORS.md` says which error becomes which.
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
    /// The code as the contract spells it: `not-found`.
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

/// What a failed request may have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing was changed.
    None,
    /// It may have been performed.
    Unknown,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What sort of failure.
    pub code: Code,
    /// For people: what failed, on what.
    pub message: String,
    /// What the request may have done.
    pub effect: Effect,
    /// Milliseconds until the earliest sensible next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// What failed, where the host knows: `vm.clone`, `patch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// What the other side said beside the message, as JSON.
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

    /// The same failure, of this operation where it says none of its own.
    pub fn of(mut self, operation: &str) -> Self {
        self.operation.get_or_insert_with(|| operation.to_owned());
        self
    }

    /// The same failure, of a request that may have been performed.
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

/// Asks for one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectQuery {
    /// The object that is meant.
    pub object: ObjectRef,
    /// Dotted paths to keep; empty keeps all.
    pub projection: Vec<String>,
    /// Read through to the API server.
    pub latest: bool,
}

/// An object within its kind and cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName {
    /// None for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `metadata.name`
    pub name: String,
}

/// A piece of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Page {
    /// Objects after this one; none begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ObjectName>,
    /// How many.
    pub size: u32,
}

/// Asks for the objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListQuery {
    /// Another cluster; none is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Which kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// None asks for every namespace that the grant reaches.
    pub namespace: Option<String>,
    /// Kubernetes label selector.
    pub label_selector: Option<String>,
    /// Kubernetes field selector.
    pub field_selector: Option<String>,
    /// Dotted paths to keep; empty keeps all.
    pub projection: Vec<String>,
    /// More objects than this are `resource-exhausted`; 0 means the host's limit.
    pub limit: u32,
    /// Only a piece; none asks for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// Read through to the API server.
    pub latest: bool,
}

impl ListQuery {
    /// Every object of a kind, wherever the grant reaches, as the watch shows it.
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

/// What identifies an object: a projection keeps these dotted paths, whatever it names beside them.
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
    /// JSON.
    pub arguments: Document,
}

/// A question: answering it changes nothing.
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
    /// The word for it in failures and recordings: a cloud's operation, or what is asked of the cluster.
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

/// A question and the round it is asked in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// 0 unless the policy looks again after an act.
    pub round: u32,
    /// What is asked.
    pub question: Question,
}

/// Performs a `change` or `create` operation of a cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CloudAct {
    /// `vm.clone`
    pub operation: String,
    /// JSON.
    pub arguments: Document,
    /// Creates only: what is being created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
}

/// What must still hold of another object when an act reaches it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Precondition {
    /// `metadata.uid`
    pub uid: String,
    /// The version this pass saw; none where it did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// Patches another object with a JSON merge patch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPatch {
    /// The object that is meant.
    pub object: ObjectRef,
    /// What must still hold of it.
    pub precondition: Precondition,
    /// `status`, or none for the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// JSON merge patch.
    pub patch: Document,
}

/// Deletes another object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDelete {
    /// The object that is meant.
    pub object: ObjectRef,
    /// What must still hold of it.
    pub precondition: Precondition,
    /// Seconds; none takes the kind's default.
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
    /// What must still hold of it.
    pub precondition: Precondition,
    /// Seconds; none takes the Pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
}

/// Creates an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectCreate {
    /// Another cluster; none is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// JSON, with a fixed `metadata.name`.
    pub object: Document,
}

/// Makes a token in the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mint {
    /// Another cluster; none is the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// A kind of token that the binding grants.
    pub kind: String,
    /// Milliseconds.
    pub ttl: u64,
}

/// Something to be done.
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

    /// The word for it in failures and recordings: a cloud's operation, or what is done to the cluster.
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

    /// Bytes of its texts: what keeping it costs.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Act::Cloud(act) => act.operation.len() + act.arguments.len() + bytes_of(&act.intent),
            Act::Create(act) => bytes_of(&act.cluster) + act.object.len(),
            Act::Patch(act) => act.object.bytes() + act.patch.len() + bytes_of(&act.subresource),
            Act::Delete(act) => act.object.bytes() + bytes_of(&act.propagation_policy),
            Act::Evict(act) => act.object.bytes(),
            Act::Mint(act) => bytes_of(&act.cluster) + act.kind.len(),
            Act::Revoke(token) => token.len(),
        };
        (bytes + size_of::<Request>()) as u64
    }
}

/// What a step lacks, or wants done: never both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Requests {
    Asks(Vec<Ask>),
    Acts(Vec<Act>),
}

impl Requests {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Requests::Asks(asks) => asks.len(),
            Requests::Acts(acts) => acts.len(),
        }
    }

    /// Whether it lacks nothing and wants nothing, which no step may say.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of their texts: what keeping them costs.
    pub fn bytes(&self) -> u64 {
        match self {
            Requests::Asks(asks) => asks.iter().map(Ask::bytes).sum(),
            Requests::Acts(acts) => acts.iter().map(Act::bytes).sum(),
        }
    }
}

impl FromIterator<Request> for Requests {
    /// What a step says that lacks and wants these: a step that lacks an answer acts later.
    fn from_iter<I: IntoIterator<Item = Request>>(requests: I) -> Self {
        let (mut asks, mut acts) = (Vec::new(), Vec::new());
        for request in requests {
            match request {
                Request::Ask(ask) => asks.push(ask),
                Request::Act(act) => acts.push(act),
            }
        }
        match asks.is_empty() {
            true => Requests::Acts(acts),
            false => Requests::Asks(asks),
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
    /// The word for it in failures and recordings: [`Question::operation`], [`Act::operation`].
    pub fn operation(&self) -> &str {
        match self {
            Request::Ask(ask) => ask.question.operation(),
            Request::Act(act) => act.operation(),
        }
    }

    /// Bytes of its texts: what keeping it costs.
    pub fn bytes(&self) -> u64 {
        match self {
            Request::Ask(ask) => ask.bytes(),
            Request::Act(act) => act.bytes(),
        }
    }
}

impl Ask {
    /// Bytes of its texts: what keeping it costs.
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
            Question::Cloud(call) => call.operation.len() + call.arguments.len(),
            Question::Lock(name) => name.len(),
            Question::Credential(plan) => plan.len(),
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

/// One request of a pass and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What was requested.
    pub request: Request,
    /// JSON, or the failure.
    pub answer: Result<Json, Failure>,
}

/// What the cloud said of a create whose answer was lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// It was performed; this is the answer it would have had.
    Done(Json),
    /// It was not performed and will not be.
    Absent,
    /// The cloud cannot say yet, and why.
    Unknown(String),
}

impl Resolution {
    /// The cloud cannot say yet.
    pub fn unknown(why: impl Into<String>) -> Self {
        Resolution::Unknown(why.into())
    }

    /// Whether the cloud cannot say yet.
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
    /// What is being created.
    pub intent: String,
    /// Unix milliseconds: when the entry was written.
    pub since: u64,
    /// What the cloud says.
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
    /// It is being deleted.
    Deleted,
    /// The time that the last pass asked for has come.
    Due,
    /// An answer that the last pass used is another one: of the object that it names, where it was one object.
    Dependency(Option<ObjectRef>),
    /// A lock that was busy is free.
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

/// One evaluation of one object, as a step sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// The primary object.
    pub object: Option<Json>,
    /// Unix milliseconds.
    pub now: u64,
    /// Why it runs.
    pub causes: Vec<Cause>,
    /// How many passes in a row before this one ended in `retry` with a failure.
    pub attempt: u32,
    /// The policy's configuration.
    pub config: Json,
    /// Creates in doubt.
    pub pending: Vec<ActInDoubt>,
    /// What was asked and done in this pass so far.
    pub journal: Vec<Entry>,
}

/// Which sort of wait a retry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum RetryClass {
    Conflict,
    Short,
    Medium,
    Long,
}

/// When an object is looked at again. Durations in milliseconds.
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
    /// CamelCase, machine-readable.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What a pass ends with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// JSON merge patch against the primary as it was handed in.
    pub patch: Option<Document>,
    /// Events on transitions.
    pub events: Vec<Event>,
    /// Edge ids.
    pub notes: Vec<String>,
    /// When to look again.
    pub next: Next,
    /// Journal entries this rests on.
    pub used: Vec<u32>,
}

/// May the lifecycle act, and as whom?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub enum Verdict {
    Granted(String),
    Denied,
    Released,
}

/// What one step returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Requests to be answered before the next step.
    Pending(Requests),
    /// The end of the pass; the verdict is present exactly for the identity role.
    Concluded {
        /// The identity role's verdict.
        verdict: Option<Verdict>,
        /// The rest.
        conclusion: Conclusion,
    },
}

/// Whose end has to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub enum Origin {
    Identity,
    Lifecycle,
    Conflict,
    Publication,
}

/// What the retry role is asked. Durations in milliseconds.
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
    /// Milliseconds that the other side wishes to be left alone.
    pub fn retry_after(&self) -> Option<u64> {
        self.failure.as_ref().and_then(|failure| failure.retry_after)
    }
}

/// What the retry role answers. Durations in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// For so many milliseconds, or until something new is wanted.
    After(u64),
    /// Until something changes, at the latest after so long.
    OnChange(Option<u64>),
}

/// The question that a policy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Which principal may act for this object?
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

/// What a policy wants to be allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Look at objects of a kind.
    Objects(Kind),
    /// See that Secrets exist, with their key names.
    Secrets,
    /// A cloud operation by name: `vm.get`.
    Cloud(String),
    /// A lock by name, or by prefix when it ends in `*`.
    Lock(String),
    /// Describe credential plans.
    Credential,
    /// Create objects of a kind.
    Create(Kind),
    /// Patch objects of a kind.
    Patch(Kind),
    /// Delete objects of a kind.
    Delete(Kind),
    /// Evict Pods.
    Evict,
    /// Mint this kind of token, and make useless what was minted.
    Mint(String),
    /// Ask whether an API server answers.
    Reachable,
}

/// An edge of the workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edge {
    /// `CAPV-05`
    pub id: String,
    /// One sentence.
    pub meaning: String,
    /// None for an id that the policy notes itself. Otherwise what the host derives it from: `started`, `published`,
    /// `requeued`, `failed`, `succeeded`, `concluded`, or another id; several, separated by spaces, mean any of them.
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

    /// An edge that the host derives: `from` is `started`, `published`, `requeued`, `failed`, `succeeded`,
    /// `concluded` or another id; several are separated by spaces, and any of them will do.
    pub fn derived(id: &str, meaning: &str, from: &str) -> Edge {
        Edge {
            derived_from: Some(from.to_owned()),
            ..Edge::noted(id, meaning)
        }
    }

    /// The edges of a table, one in a line: its id, what it means and, for one that the host derives, from what, with
    /// tabs between them. Lines that begin with `#` are remarks.
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

/// What a policy is, needs and writes: what `describe` answers, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// The question that it answers.
    pub role: Role,
    /// Kinds whose objects it can govern; empty means any.
    #[serde(default)]
    pub governs: Vec<Kind>,
    /// What it wants to be allowed. The binding must grant each.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Dotted paths of the primary that it writes; conditions by type: `status.conditions[Ready]`.
    #[serde(default)]
    pub writes: Vec<String>,
    /// JSON Schema of its configuration.
    #[serde(default)]
    pub config_schema: serde_json::Value,
    /// The finalizer that the host keeps on an object before the first act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// The CustomResourceDefinition of its kind; with those of further kinds, one `List` of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crd: Option<serde_json::Value>,
    /// The edges of its workflow: the vocabulary of its notes.
    #[serde(default)]
    pub edges: Vec<Edge>,
}

impl Manifest {
    /// The CustomResourceDefinitions of its kinds: several are one `List`.
    pub fn crds(&self) -> impl Iterator<Item = &serde_json::Value> {
        let several = |crd: &serde_json::Value| crd["kind"] == "List";
        let items = self.crd.iter().filter(move |crd| several(crd));
        let items = items.flat_map(|list| list["items"].as_array().into_iter().flatten());
        self.crd.iter().filter(move |crd| !several(crd)).chain(items)
    }
}
