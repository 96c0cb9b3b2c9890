//! The Machine: what a person, or a MachineSet, writes, and what this policy writes.
//!
//! Which VM and which node belong to a machine stands in `status`: a tenant can write `spec` and labels.

use std::time::Duration;

use polity_sdk::kube::drain::Drain;
use polity_sdk::kube::node::{Node, NodeCondition, NodeTemplate};
use polity_sdk::prelude::*;

/// The finalizer that keeps a Machine until its VM and its node are gone.
pub const FINALIZER: &str = "mcm.polity.dev/machine";
/// The label that names the node.
pub const NODE: &str = "node";
/// The label that names the deployment.
pub const DEPLOYMENT: &str = "name";
/// The label that forces the drain when it says true.
const FORCE_DELETION: &str = "force-deletion";
/// The same operation is not written again before this long, so that a failure that repeats writes nothing.
const SAME_OPERATION: Duration = Duration::from_secs(30 * 60);

/// A machine of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Its name is the VM's; its labels name the node and the deployment.
    pub metadata: Metadata,
    /// What is wanted.
    #[serde(default)]
    pub spec: MachineSpec,
    /// The observed state.
    #[serde(default)]
    pub status: MachineStatus,
}

impl Kind for Machine {
    const API_VERSION: &'static str = crate::API_VERSION;
    const KIND: &'static str = "Machine";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn conditions_mut(&mut self) -> Option<&mut Conditions> {
        Some(&mut self.status.conditions)
    }
}

/// What is wanted of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// What it is made from.
    pub class: ClassRef,
    /// What its node is to carry.
    pub node_template: NodeTemplate,
    /// When a drain is forced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Period>,
    /// When an Unknown machine is Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<Period>,
    /// When a machine that has not joined is Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timeout: Option<Period>,
    /// How often a disruption budget may refuse a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_evict_retries: Option<u32>,
    /// Node conditions that must not hold of a healthy node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_conditions: Option<Vec<String>>,
    /// An Unknown machine never becomes Failed.
    pub disable_health_timeout: bool,
}

/// Names a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClassRef {
    /// `MachineClass`
    pub kind: String,
    /// Its name, in the machine's namespace.
    pub name: String,
}

/// What is known of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The cloud's id of the VM; absent while none was made.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The node, once the machine waits for it to join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Where the machine is on its way.
    pub current_status: CurrentStatus,
    /// What was done last, and for a deletion what comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// What the driver wants to remember.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
    /// The node's conditions as they were seen last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_conditions: Vec<KnownCondition>,
    /// The bootstrap token that was made for the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<Token>,
    /// What the drain remembers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// `ClassValid`, `SafetyFound`, `Drained`, and `Reconciled` from the first pass that failed on.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// Where a machine is on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CurrentStatus {
    /// Absent until the first attempt to make its VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// When the phase last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Whether a timeout runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timeout_active: bool,
}

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The VM is made; its node has not joined.
    Pending,
    /// The node is healthy.
    Running,
    /// The node is not healthy, or gone.
    Unknown,
    /// It was given up; its MachineSet replaces it.
    Failed,
    /// The VM could not be made; it is tried again.
    CrashLoopBackOff,
    /// It is being taken down.
    Terminating,
}

/// What was done last, and for a deletion what comes next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// For people.
    #[serde(default)]
    pub description: String,
    /// What sort of operation.
    #[serde(rename = "type")]
    pub kind: OperationKind,
    /// How it is.
    pub state: OperationState,
    /// What the deletion does next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_op: Option<NextOp>,
    /// The code of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

/// A sort of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum OperationKind {
    Create,
    Update,
    HealthCheck,
    Delete,
}

/// How an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum OperationState {
    Processing,
    Failed,
    Successful,
}

/// A step of the deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NextOp {
    /// Ask the driver for the VM.
    GetVMStatus,
    /// Drain the node.
    InitiateDrain,
    /// Delete what volumes are still attached.
    DelVolumeAttachments,
    /// Delete the VM.
    InitiateVMDeletion,
    /// Delete the Node.
    InitiateNodeDeletion,
    /// Let go of the Machine.
    InitiateFinalizerRemoval,
    /// The driver's answer made no sense: start again.
    FailedDecode,
}

/// A condition of the node as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct KnownCondition {
    /// `Ready`
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where the host keeps a bootstrap token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// Its name to the host.
    pub name: String,
    /// The key.
    pub key: String,
    /// When it is of no more use.
    pub expires: Time,
}

impl Machine {
    /// The CustomResourceDefinition.
    pub fn crd() -> Crd {
        Crd::of::<Machine>("machines")
            .short_name("mc")
            .column("Phase", ".status.currentStatus.phase")
            .column("Node", ".status.node")
            .column("Operation", ".status.lastOperation.description")
            .age_column("Age", ".metadata.creationTimestamp")
    }

    /// Its phase; none until the first attempt to make its VM.
    pub fn phase(&self) -> Option<Phase> {
        self.status.current_status.phase
    }

    /// Moves to another phase, from now on.
    pub fn set_phase(&mut self, now: Time, phase: Phase) {
        self.status.current_status = CurrentStatus {
            phase: Some(phase),
            last_update_time: Some(now),
            timeout_active: matches!(phase, Phase::Pending | Phase::Unknown),
        };
    }

    /// How long it has been in its phase.
    pub fn in_phase(&self, now: Time) -> Duration {
        let since = self.status.current_status.last_update_time;
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// How long it has existed.
    pub fn age(&self, now: Time) -> Duration {
        let since = self.metadata.creation_timestamp;
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// The node's name: the label's, or where that was lost the one known before.
    pub fn node_name(&self) -> Option<&str> {
        let label = self.metadata.labels.get(NODE).or(self.status.node.as_ref());
        label.map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether its VM is on record, and it waits for a node that its label still names, or has one.
    pub fn is_linked(&self) -> bool {
        let node = self.status.node.as_ref();
        let named = node.is_some_and(|node| !node.is_empty() && self.metadata.labels.get(NODE) == Some(node));
        named && self.status.provider_id.is_some()
    }

    /// Why it is not healthy, by the node's conditions as they were seen last, where these must not hold; none if it is.
    /// A node that does not say that it is ready is not.
    pub fn why_unhealthy(&self, watched: &[String]) -> Option<String> {
        let conditions = &self.status.node_conditions;
        let status = |kind: &str| {
            conditions
                .iter()
                .find(|c| c.kind == kind)
                .map(|c| c.status.as_str())
        };
        let ready = status("Ready").unwrap_or("missing");
        if ready != "True" {
            return Some(format!("the node's Ready is {ready}"));
        }
        let watched = self.spec.node_conditions.as_deref().unwrap_or(watched);
        let bad = watched
            .iter()
            .find(|kind| status(kind).is_some_and(|status| status != "False"));
        bad.map(|kind| format!("the node's {kind} is {}", status(kind).unwrap_or_default()))
    }

    /// Whether somebody wants it gone whatever its pods say.
    pub fn is_forced(&self) -> bool {
        let label = self.metadata.labels.get(FORCE_DELETION).map(String::as_str);
        matches!(label, Some("1" | "t" | "T" | "true" | "True" | "TRUE"))
    }

    /// Moves to another phase, because of this operation.
    pub fn turn(
        &mut self,
        now: Time,
        phase: Phase,
        (kind, state): (OperationKind, OperationState),
        why: impl Into<String>,
    ) {
        self.set_phase(now, phase);
        self.operate(now, LastOperation::new(kind, state, why));
    }

    /// What its deletion does next; none while nothing of a deletion is written down.
    pub fn next_op(&self) -> Option<NextOp> {
        let last = self.status.last_operation.as_ref();
        let deletion = last.filter(|last| last.kind == OperationKind::Delete);
        deletion.and_then(|last| last.next_op)
    }

    /// The sort of the last operation.
    pub fn last_kind(&self) -> Option<OperationKind> {
        self.status.last_operation.as_ref().map(|last| last.kind)
    }

    /// Whether its last operation is a creation that has not succeeded.
    pub fn is_being_created(&self) -> bool {
        let last = self.status.last_operation.as_ref();
        last.is_some_and(|last| {
            last.kind == OperationKind::Create && last.state != OperationState::Successful
        })
    }

    /// Whether the finalizer holds it.
    pub fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().any(|held| held == FINALIZER)
    }

    /// Writes down an operation, unless it is the one that is written down already and the phase is the same. Whether it
    /// was written.
    pub fn operate(&mut self, now: Time, mut operation: LastOperation) -> bool {
        let same = self.status.last_operation.as_ref().is_some_and(|last| {
            let young = last
                .last_update_time
                .is_some_and(|at| now.since(at) < SAME_OPERATION);
            young
                && self.status.current_status.last_update_time != Some(now)
                && (last.kind, last.state, last.next_op)
                    == (operation.kind, operation.state, operation.next_op)
                && last.error_code == operation.error_code
        });
        if !same {
            operation.last_update_time = Some(now);
            self.status.last_operation = Some(operation);
        }
        !same
    }
}

impl KnownCondition {
    /// A node's conditions by type, without what changes with every heartbeat.
    pub fn all(node: &Node) -> Vec<KnownCondition> {
        let known = |condition: &NodeCondition| KnownCondition {
            kind: condition.kind.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
        };
        let mut all: Vec<KnownCondition> = node.status.conditions.iter().map(known).collect();
        all.sort();
        all
    }
}

impl LastOperation {
    /// An operation of this sort, which is so far.
    pub fn new(kind: OperationKind, state: OperationState, description: impl Into<String>) -> Self {
        LastOperation {
            description: description.into(),
            kind,
            state,
            next_op: None,
            error_code: None,
            last_update_time: None,
        }
    }

    /// A failed one.
    pub fn failed(kind: OperationKind, failure: &Failure) -> Self {
        LastOperation {
            error_code: Some(failure.code.as_str().to_owned()),
            ..LastOperation::new(kind, OperationState::Failed, &failure.message)
        }
    }

    /// A deletion that does this next.
    pub fn next(mut self, next: NextOp) -> Self {
        self.next_op = Some(next);
        self
    }
}
