//! The Orb: a Kubernetes cluster of machines in pools, as a person writes it and as orbiter finds it.

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
/// The taint by which orbiter knows a node that it cordoned itself.
pub const UPDATING: &str = "orbiter.polity.dev/updating";

/// A Kubernetes cluster of machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Orb {
    /// Its name begins the names of its machines.
    pub metadata: Metadata,
    /// What is wanted.
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

/// What is wanted of a cluster.
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
    /// Whose pool it is, for clouds that speak to several providers.
    #[serde(default)]
    pub provider: String,
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub pool: String,
    /// How many machines.
    #[schemars(range(max = 1000))]
    pub nodes: u32,
    /// No version is changed on the machines of this pool.
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

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrbStatus {
    /// Where the cluster is on its way, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its machines, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, MachineStatus>,
    /// The addresses under which each pool is reached.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, Vec<String>>,
    /// The machine that became the first node. A cluster is made once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialized: Option<String>,
    /// Work that the cloud does in its own time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// The one node that is being changed. It stands here before the node's flag is set, and until that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing: Option<Changing>,
    /// Where that node is in the order of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u32>,
    /// The one node that is being drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<Draining>,
    /// `Ready`.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// Where a cluster is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Machines or versions are not yet what they should be.
    Maintaining,
    /// Something stands in the way.
    Degraded,
    /// Everything is as it should be.
    Running,
}

/// What is known of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// The pool it belongs to.
    pub pool: String,
    /// What it is for.
    pub tier: Tier,
    /// It has a node.
    #[serde(default)]
    pub joined: bool,
    /// Its node says that it is ready, and so does its agent.
    #[serde(default)]
    pub ready: bool,
    /// Its agent may change it.
    #[serde(default)]
    pub updating: bool,
    /// Its agent changes it, and its node is not ready: it reboots, as far as can be told.
    #[serde(default)]
    pub rebooting: bool,
    /// Its node cannot be judged: nobody has heard of it.
    #[serde(default)]
    pub unknown: bool,
}

/// Work that the cloud does in its own time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The task's id.
    pub id: String,
    /// What it does.
    pub kind: TaskKind,
    /// The machine's name.
    pub machine: String,
    /// The Node, and what it says in `spec.providerID`.
    pub node: String,
    /// The machine's id to its node.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// When it was submitted.
    pub since: Time,
    /// When it had ended well, and its node was still to appear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Time>,
    /// The token with which the machine joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Installs the node agent.
    Install,
    /// Makes the first node.
    Init,
    /// Makes a further node.
    Join,
    /// Resets and destroys the machine.
    Remove,
}

/// Where the host keeps a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// Its name to the host.
    pub name: String,
    /// The key.
    pub key: String,
}

/// The node that is being changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changing {
    /// Its name.
    pub node: String,
    /// Its uid: a node of the same name that came later is another one.
    pub uid: String,
    /// Since when.
    pub since: Time,
    /// The version of its kubelet before. What is needed does not change because this one node has got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The node that is being drained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Draining {
    /// Its uid.
    pub uid: String,
    /// What the drain remembers.
    #[serde(default)]
    pub drain: Drain,
}

impl MachineStatus {
    /// What its node tells of a machine.
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

    /// Its pools, the control plane's first.
    pub fn pools(&self) -> impl Iterator<Item = (Tier, &PoolSpec)> {
        let workers = self.spec.workers.iter().map(|pool| (Tier::Worker, pool));
        std::iter::once((Tier::ControlPlane, &self.spec.control_plane)).chain(workers)
    }

    /// What a machine of this pool and number is called.
    pub fn machine_name(&self, pool: &str, number: u32) -> String {
        format!("{}-{pool}-{number}", self.metadata.name)
    }

    /// The number in the name of a machine of this pool; none of a name that is not ours.
    pub fn number(&self, pool: &str, machine: &str) -> Option<u32> {
        let rest = machine
            .strip_prefix(self.metadata.name.as_str())?
            .strip_prefix('-')?;
        rest.strip_prefix(pool)?.strip_prefix('-')?.parse().ok()
    }
}
