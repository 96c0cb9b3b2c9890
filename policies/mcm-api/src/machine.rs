//! The Machine: the fields that people or a MachineSet write, and those that the policy writes.
//!
//! `status` records which VM and which node belong to a machine, because a tenant can write `spec` and
//! labels.

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
/// The annotation with the priority of a machine: a MachineSet deletes machines of a low priority first.
pub const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
/// The priority of a machine without one, and with which every machine begins.
pub const DEFAULT_PRIORITY: i64 = 3;
/// The label that forces the drain if its value is true.
const FORCE_DELETION: &str = "force-deletion";
/// The same operation is written again only after this time, so that a repeated failure writes nothing.
const SAME_OPERATION: Duration = Duration::from_secs(30 * 60);

/// A machine of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The metadata. The VM has the same name; labels name the node and the deployment.
    pub metadata: Metadata,
    /// The wanted state.
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

/// The wanted state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// The class from which it is made.
    pub class: ClassRef,
    /// The labels, annotations and taints of its node.
    pub node_template: NodeTemplate,
    /// The time after which a drain is forced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Period>,
    /// The time after which an Unknown machine becomes Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<Period>,
    /// The time after which a machine that has not joined becomes Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timeout: Option<Period>,
    /// How often a disruption budget may refuse a pod before the drain is forced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_evict_retries: Option<u32>,
    /// The node conditions that must not be true on a healthy node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_conditions: Option<Vec<String>>,
    /// Whether an Unknown machine never becomes Failed.
    pub disable_health_timeout: bool,
}

/// A reference to a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClassRef {
    /// `MachineClass`
    pub kind: String,
    /// The name of the class, in the machine's namespace.
    pub name: String,
}

/// The observed state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The cloud's id of the VM; absent as long as none was created.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// When that id was recorded, which is soon after the VM's creation. If it is missing, the machine's own creation
    /// counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// The cloud's id of the VM whose deletion the cloud has accepted.
    #[serde(rename = "deletedProviderID", skip_serializing_if = "Option::is_none")]
    pub deleted_provider_id: Option<String>,
    /// The name of the node, once the machine waits for it to join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The phase of the machine.
    pub current_status: CurrentStatus,
    /// The last operation, and for a deletion the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// A state that the driver wants to be remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
    /// The node's conditions when they were last seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_conditions: Vec<KnownCondition>,
    /// The bootstrap token that was minted for the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<Token>,
    /// The credentials with which the machine's cloud was last reached, if `mcm-identity` selects them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// The state of the drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// `ClassValid`, `SafetyFound`, `Drained`, and `Reconciled` from the first failed pass on.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// The phase of a machine, with its times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CurrentStatus {
    /// The phase; absent until the first attempt to create the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// When the phase last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Whether a timeout is running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timeout_active: bool,
}

/// The phase of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The VM exists; its node has not joined.
    Pending,
    /// The node is healthy.
    Running,
    /// The node is unhealthy or gone.
    Unknown,
    /// The machine was given up. Its MachineSet replaces it.
    Failed,
    /// The VM could not be created. The policy tries again.
    CrashLoopBackOff,
    /// The machine is being deleted.
    Terminating,
}

/// The last operation, and for a deletion the next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// The description for people.
    #[serde(default)]
    pub description: String,
    /// The kind of operation.
    #[serde(rename = "type")]
    pub kind: OperationKind,
    /// The state of the operation.
    pub state: OperationState,
    /// The next step of the deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_op: Option<NextOp>,
    /// The code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum OperationKind {
    Create,
    HealthCheck,
    Delete,
}

/// The state of an operation.
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
    /// Delete the volume attachments that are left.
    DelVolumeAttachments,
    /// Delete the VM.
    InitiateVMDeletion,
    /// Delete the Node.
    InitiateNodeDeletion,
    /// Remove the finalizer of the Machine.
    InitiateFinalizerRemoval,
    /// The driver's answer could not be read: start again.
    FailedDecode,
}

/// A condition of the node when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct KnownCondition {
    /// `Ready`
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The credentials of a machine: those of its class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// The name of the class.
    pub class_name: String,
    /// The uid of the class.
    #[serde(rename = "classUID")]
    pub class_uid: String,
    /// The name of its Secret; absent if they are those of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
}

/// A bootstrap token that the host keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// The name under which the host keeps it.
    pub name: String,
    /// The key in the Secret.
    pub key: String,
    /// When the token expires.
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

    /// The phase; `None` until the first attempt to create its VM.
    pub fn phase(&self) -> Option<Phase> {
        self.status.current_status.phase
    }

    /// Changes the phase, as of now.
    pub fn set_phase(&mut self, now: Time, phase: Phase) {
        self.status.current_status = CurrentStatus {
            phase: Some(phase),
            last_update_time: Some(now),
            timeout_active: matches!(phase, Phase::Pending | Phase::Unknown),
        };
    }

    /// How long the machine has been in its phase.
    pub fn in_phase(&self, now: Time) -> Duration {
        let since = self.status.current_status.last_update_time;
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// How long it has existed.
    pub fn age(&self, now: Time) -> Duration {
        let since = self.metadata.creation_timestamp;
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Records the cloud's id of the VM, and since when it is known.
    pub fn record_vm(&mut self, now: Time, provider_id: &str) {
        if self.status.provider_id.as_deref() != Some(provider_id) {
            self.status.provider_id = Some(provider_id.to_owned());
            self.status.created_at = Some(now);
        }
    }

    /// Forgets the VM, which is deleted.
    pub fn forget_vm(&mut self) {
        self.status.provider_id = None;
        self.status.created_at = None;
    }

    /// Whether the machine does not wait for its node yet.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.phase(), None | Some(Phase::CrashLoopBackOff))
    }

    /// Whether the cloud may not show the VM on record: `within` this time after its creation, unless the cloud has accepted
    /// its deletion. Then a VM that is not found is no VM that is gone.
    ///
    /// Source: "Eventual consistency in the Amazon EC2 API",
    /// <https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html>.
    pub fn is_hidden(&self, now: Time, within: Duration) -> bool {
        let status = &self.status;
        let since = status.created_at.or(self.metadata.creation_timestamp);
        let is_new = since.is_some_and(|since| now < since + within);
        is_new && status.provider_id.is_some() && status.provider_id != status.deleted_provider_id
    }

    /// The name of the node in the label, or if the label was lost, the last known name.
    pub fn node_name(&self) -> Option<&str> {
        let label = self.metadata.labels.get(NODE).or(self.status.node.as_ref());
        label.map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether the machine's VM is recorded, and the machine either has a node or waits for the node in its label.
    pub fn is_linked(&self) -> bool {
        let node = self.status.node.as_ref();
        let named = node.is_some_and(|node| !node.is_empty() && self.metadata.labels.get(NODE) == Some(node));
        named && self.status.provider_id.is_some()
    }

    /// The reason why the machine is unhealthy, from the last conditions of its node; `None` if it is healthy. The
    /// conditions in `watched` must not be true. A node that does not report that it is ready is unhealthy.
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

    /// Whether a person forces the drain.
    pub fn is_forced(&self) -> bool {
        let label = self.metadata.labels.get(FORCE_DELETION).map(String::as_str);
        matches!(label, Some("1" | "t" | "T" | "true" | "True" | "TRUE"))
    }

    /// Changes the phase because of this operation.
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

    /// The next step of the deletion; `None` if no deletion is recorded.
    pub fn next_op(&self) -> Option<NextOp> {
        let last = self.status.last_operation.as_ref();
        let deletion = last.filter(|last| last.kind == OperationKind::Delete);
        deletion.and_then(|last| last.next_op)
    }

    /// The kind of the last operation.
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

    /// Whether it has the finalizer.
    pub fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().any(|held| held == FINALIZER)
    }

    /// Records an operation, unless the same one is recorded already in the same phase. Returns whether it
    /// was recorded.
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
    /// A node's conditions by type, without the fields that change with every heartbeat.
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
    /// An operation of this kind in this state.
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

    /// A failed operation.
    pub fn failed(kind: OperationKind, failure: &Failure) -> Self {
        LastOperation {
            error_code: Some(failure.code.as_str().to_owned()),
            ..LastOperation::new(kind, OperationState::Failed, &failure.message)
        }
    }

    /// The machine's VM is not found, and may be there all the same.
    pub fn hidden(kind: OperationKind, machine: &Machine) -> Self {
        let vm = machine.status.provider_id.as_deref().unwrap_or_default();
        let description = format!("the cloud does not show the new VM {vm} yet: it is asked again");
        LastOperation {
            error_code: Some(Code::NotFound.as_str().to_owned()),
            ..LastOperation::new(kind, OperationState::Processing, description)
        }
    }

    /// A deletion with this next step.
    pub fn next(mut self, next: NextOp) -> Self {
        self.next_op = Some(next);
        self
    }
}
