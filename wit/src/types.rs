//! The types of `types.wit` and `policy.wit`, which document them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Document;

/// A JSON document as text, shared.
pub type Json = Arc<str>;

/// What a request got: a value, or a failure.
pub type Answer = Result<serde_json::Value, Failure>;

/// A kind of the cluster's API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
}

impl Failure {
    /// A failure that changed nothing.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure {
            code,
            message: message.into(),
            effect: Effect::None,
            retry_after: None,
        }
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
    /// Which object.
    pub object: ObjectRef,
    /// Dotted paths to keep; empty keeps all.
    pub projection: Vec<String>,
    /// Read through to the API server.
    pub latest: bool,
}

/// Asks for the objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListQuery {
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
    /// Read through to the API server.
    pub latest: bool,
}

/// Asks a cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CloudCall {
    /// An operation of the catalogue whose effect is `read`.
    pub operation: String,
    /// JSON.
    pub arguments: Document,
}

/// Asks for credentials.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CredentialPlan {
    /// JSON, as the cloud's credential schema says.
    pub plan: Document,
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
    Permit(String),
    Credential(CredentialPlan),
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
    /// Which object.
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
    /// Which object.
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

/// Makes a token in the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mint {
    /// `bootstrap-token` or `password`.
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
    Create(Document),
    Patch(ObjectPatch),
    Delete(ObjectDelete),
    Evict(Eviction),
    Mint(Mint),
}

/// What a step may return while it is not finished.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Request {
    Ask(Ask),
    Act(Act),
}

impl Request {
    /// Bytes of its texts: what keeping it costs.
    pub fn bytes(&self) -> u64 {
        let object = |object: &ObjectRef| {
            let namespace = object.namespace.as_ref().map_or(0, String::len);
            object.kind.api_version.len() + object.kind.kind.len() + namespace + object.name.len()
        };
        let texts = |texts: &[String]| {
            texts
                .iter()
                .map(|text| text.len() + size_of::<String>())
                .sum::<usize>()
        };
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let bytes = match self {
            Request::Ask(ask) => match &ask.question {
                Question::Object(query) => object(&query.object) + texts(&query.projection),
                Question::Objects(query) => {
                    let selectors = text(&query.label_selector) + text(&query.field_selector);
                    let kind = query.kind.api_version.len() + query.kind.kind.len();
                    kind + text(&query.namespace) + selectors + texts(&query.projection)
                }
                Question::Secret(secret) => object(secret),
                Question::Cloud(call) => call.operation.len() + call.arguments.len(),
                Question::Permit(name) => name.len(),
                Question::Credential(plan) => plan.plan.len(),
            },
            Request::Act(act) => match act {
                Act::Cloud(act) => act.operation.len() + act.arguments.len() + text(&act.intent),
                Act::Create(content) => content.len(),
                Act::Patch(act) => object(&act.object) + act.patch.len() + text(&act.subresource),
                Act::Delete(act) => object(&act.object) + text(&act.propagation_policy),
                Act::Evict(act) => object(&act.object),
                Act::Mint(act) => act.kind.len(),
            },
        };
        (bytes + size_of::<Request>()) as u64
    }
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
pub enum Doubt {
    /// It was performed; this is the answer it would have had.
    Done(Json),
    /// It was not performed and will not be.
    Absent,
    /// The cloud cannot say yet.
    Unknown,
}

/// A create found in `status.pending` at the start of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActInDoubt {
    /// `vm.clone`
    pub operation: String,
    /// What is being created.
    pub intent: String,
    /// Unix milliseconds: when the entry was written.
    pub since: u64,
    /// What the cloud says.
    pub state: Doubt,
}

/// Why a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in types.wit")]
pub enum Cause {
    Created,
    Changed,
    Deleted,
    Due,
    Dependency,
    Resync,
    Requested,
    Binding,
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
    Pending(Vec<Request>),
    /// The end of the pass; the verdict is present exactly for the identity role.
    Concluded {
        /// The identity role's verdict.
        verdict: Option<Verdict>,
        /// The rest.
        conclusion: Conclusion,
    },
}

/// What the retry role is asked. Durations in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub struct Trial {
    pub class: RetryClass,
    pub code: Option<Code>,
    pub attempt: u32,
    pub since: u64,
    pub retry_after: Option<u64>,
    pub seed: u64,
    pub config: Json,
}

/// The question that a policy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub enum Role {
    Identity,
    Lifecycle,
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub enum Need {
    Objects(Kind),
    Secrets,
    Cloud(String),
    Permit(String),
    Credential,
    Create(Kind),
    Patch(Kind),
    Delete(Kind),
    Evict,
    Mint(String),
}

/// An edge of the workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// `CAPV-05`
    pub id: String,
    /// One sentence.
    pub meaning: String,
    /// None for an id that the policy notes itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<String>,
}

/// What a policy is, needs and writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "documented in policy.wit")]
pub struct Manifest {
    pub name: String,
    pub version: String,
    pub role: Role,
    pub governs: Vec<Kind>,
    pub needs: Vec<Need>,
    pub writes: Vec<String>,
    pub config_schema: serde_json::Value,
    pub finalizer: Option<String>,
    pub crd: Option<serde_json::Value>,
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
