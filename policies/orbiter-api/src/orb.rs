//! The Orb: a Kubernetes cluster of machines in pools, as people write it and as orbiter finds it.

use std::collections::BTreeMap;

use polity_sdk::cloud::pool::Tier;
use polity_sdk::kube::drain::Drain;
use polity_sdk::kube::node::{Node, Taint};
use polity_sdk::prelude::*;
use schemars::{Schema, SchemaGenerator};

use crate::{NodeMetadata, Versions};

/// The finalizer that keeps an Orb until its machines are gone.
pub const FINALIZER: &str = "orbiter.polity.dev/orb";
/// The label that says to which Orb a Node belongs.
pub const ORB: &str = "orbiter.polity.dev/orb";
/// The taint with which orbiter marks a node that it has cordoned itself.
pub const UPDATING: &str = "orbiter.polity.dev/updating";

/// A Kubernetes cluster of machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Orb {
    /// The metadata. The names of its machines begin with its name.
    pub metadata: Metadata,
    /// The wanted state.
    pub spec: OrbSpec,
    /// The observed state.
    #[serde(default)]
    pub status: OrbStatus,
}

impl Kind for Orb {
    const API_VERSION: &'static str = crate::API_VERSION;
    const KIND: &'static str = "Orb";
    const NAMESPACED: bool = false;

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The wanted state of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrbSpec {
    /// The machines of the control plane: 1, 3 or 5.
    #[schemars(schema_with = "control_plane")]
    pub control_plane: PoolSpec,
    /// All other machines.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub workers: Vec<PoolSpec>,
    /// The version of `kubernetes`, and of each further package.
    #[schemars(schema_with = "versions")]
    pub versions: Versions,
}

/// A pool of machines that are alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    /// The provider of the pool, for clouds with several providers.
    #[serde(default)]
    pub provider: String,
    /// The name of the pool.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub pool: String,
    /// The number of machines.
    #[schemars(range(max = 1000))]
    pub nodes: u32,
    /// Whether no version is changed on the machines of this pool.
    #[serde(default)]
    pub updates_disabled: bool,
    /// The taints with which its nodes join.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

fn control_plane(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = PoolSpec::json_schema(generator);
    if let Some(nodes) = schema.pointer_mut("/properties/nodes") {
        nodes["enum"] = serde_json::json!([1, 3, 5]);
    }
    schema
}

fn versions(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "description": "The version of `kubernetes`, and of each further package.",
        "type": "object",
        "required": ["kubernetes"],
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "pattern": "^[0-9][0-9A-Za-z.+:~-]*$", "maxLength": 128},
    })
}

/// The observed state of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrbStatus {
    /// The phase of the cluster, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its machines, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, MachineStatus>,
    /// The addresses at which each pool is reached.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, Vec<String>>,
    /// The machine that became the first node. A cluster is created once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialized: Option<String>,
    /// Tasks of the cloud that are under way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// The one node that is being changed. It is set before the node's flag is set, and cleared after the
    /// flag is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing: Option<Changing>,
    /// The position of that node in the order of all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u32>,
    /// The one node that is being drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<Draining>,
    /// The condition `Ready`.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// The phase of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Machines or versions are not yet what they should be.
    Maintaining,
    /// A problem stands in the way.
    Degraded,
    /// Everything is as it should be.
    Running,
}

/// The observed state of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// The pool of the machine.
    pub pool: String,
    /// The tier of the machine.
    pub tier: Tier,
    /// Whether it has a node.
    #[serde(default)]
    pub joined: bool,
    /// Whether its node and its agent are ready.
    #[serde(default)]
    pub ready: bool,
    /// Whether its agent may change it.
    #[serde(default)]
    pub updating: bool,
    /// Whether its agent changes it and its node is not ready: it is probably rebooting.
    #[serde(default)]
    pub rebooting: bool,
    /// Whether the state of its node is unknown, because nothing was heard of it.
    #[serde(default)]
    pub unknown: bool,
}

/// A task of the cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The task's id.
    pub id: String,
    /// The kind of the task.
    pub kind: TaskKind,
    /// The machine's name.
    pub machine: String,
    /// The name of the Node.
    pub node: String,
    /// The id of the machine, which is the `spec.providerID` of its node.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// When it was submitted.
    pub since: Time,
    /// When the task had succeeded and the node was still to appear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Time>,
    /// The token with which the machine joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Installs the node agent.
    Install,
    /// Creates the first node.
    Init,
    /// Joins a further node.
    Join,
    /// Resets and destroys the machine.
    Remove,
}

/// A token that the host keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// The name under which the host keeps it.
    pub name: String,
    /// The key in the Secret.
    pub key: String,
}

/// The node that is being changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changing {
    /// The name of the node.
    pub node: String,
    /// The uid of the node. A later node of the same name is another node.
    pub uid: String,
    /// When its change began.
    pub since: Time,
    /// The version of its kubelet before the change. The needed version does not change because this one node
    /// has reached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The node that is being drained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Draining {
    /// The uid of the node.
    pub uid: String,
    /// The state of the drain.
    #[serde(default)]
    pub drain: Drain,
}

impl MachineStatus {
    /// The state of a machine, from its node.
    pub fn of(pool: &str, tier: Tier, node: Option<&Node>, metadata: &NodeMetadata) -> Self {
        let ready = node.is_some_and(Node::is_ready);
        let heard = |node: &Node| {
            node.condition("Ready")
                .is_some_and(|ready| ready.status != "Unknown")
        };
        let updating = metadata.changes_allowed;
        MachineStatus {
            pool: pool.to_owned(),
            tier,
            joined: node.is_some(),
            ready: ready && metadata.ready == Some(true),
            updating,
            rebooting: updating && node.is_some() && !ready,
            unknown: node.is_some_and(|node| !heard(node)),
        }
    }
}

impl Orb {
    /// The CustomResourceDefinition.
    pub fn crd() -> Crd {
        Crd::of::<Orb>("orbs")
            .column("Phase", ".status.phase")
            .column("Changing", ".status.changing.node")
            .column("Reason", ".status.conditions[?(@.type==\"Ready\")].reason")
            .age_column("Age", ".metadata.creationTimestamp")
    }

    /// The pools of the Orb. The pool of the control plane is the first.
    pub fn pools(&self) -> impl Iterator<Item = (Tier, &PoolSpec)> {
        let workers = self.spec.workers.iter().map(|pool| (Tier::Worker, pool));
        std::iter::once((Tier::ControlPlane, &self.spec.control_plane)).chain(workers)
    }

    /// The name of the machine with this pool and number.
    pub fn machine_name(&self, pool: &str, number: u32) -> String {
        format!("{}-{pool}-{number}", self.metadata.name)
    }

    /// The number in the name of a machine of this pool; `None` if orbiter would not give this name.
    pub fn number(&self, pool: &str, machine: &str) -> Option<u32> {
        let rest = machine
            .strip_prefix(self.metadata.name.as_str())?
            .strip_prefix('-')?;
        rest.strip_prefix(pool)?.strip_prefix('-')?.parse().ok()
    }
}
