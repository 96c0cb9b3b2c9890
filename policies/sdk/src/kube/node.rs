//! Nodes: the parts that policies read, and the writes of a machine's policy.
//!
//! A patch replaces a list as a whole. So taints and conditions have all their fields here, and a write to
//! one of these lists carries the version that was seen.

mod template;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{self, Write, Written};
use crate::{Code, Context, Failure, Kind, Metadata, Time};

pub use template::{Merge, NodeTemplate, TemplateMetadata, TemplateSpec};

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The metadata, with labels and annotations.
    pub metadata: Metadata,
    /// The wanted state.
    #[serde(default)]
    pub spec: NodeSpec,
    /// The reported state.
    #[serde(default)]
    pub status: NodeStatus,
}

impl Kind for Node {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Node";
    const NAMESPACED: bool = false;
    const PROJECTION: &'static [&'static str] = &[
        "metadata.labels",
        "metadata.annotations",
        "metadata.creationTimestamp",
        "metadata.deletionTimestamp",
        "spec.providerID",
        "spec.unschedulable",
        "spec.taints",
        "status.conditions",
        "status.volumesAttached",
    ];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The wanted state of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// The cloud's id of its machine; absent until it is written.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Whether the node is cordoned, so that no new pods are placed on it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// The taints, which keep pods away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// A taint, which keeps pods away that do not tolerate it. It is identified by key and effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}

impl Taint {
    /// Whether two taints are the same, whatever their values.
    pub fn is(&self, other: &Taint) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

/// The reported state of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// The volumes that are attached to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes_attached: Vec<AttachedVolume>,
    /// The kubelet's description of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
}

/// The kubelet's description of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// The operating system's id of the machine; empty if it is not known.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
}

/// A condition of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// The type, for example `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the kubelet last reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// A volume that is attached to a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachedVolume {
    /// The name of the volume, for its driver.
    pub name: String,
    /// The path of the device on the node.
    #[serde(default)]
    pub device_path: String,
}

impl Node {
    /// Whether a volume is attached to the node, by the cloud's id of it: `kubernetes.io/csi/DRIVER^ID`, and
    /// `kubernetes.io/PLUGIN/ID` before CSI.
    pub fn has_attached(&self, id: &str) -> bool {
        let names = self.status.volumes_attached.iter().map(|volume| &volume.name);
        names
            .filter_map(|name| name.strip_suffix(id))
            .any(|before| before.is_empty() || before.ends_with(['^', '/']))
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Whether it has this taint.
    pub fn has_taint(&self, key: &str, effect: &str) -> bool {
        let taints = &self.spec.taints;
        taints
            .iter()
            .any(|taint| taint.key == key && taint.effect == effect)
    }

    /// Whether its condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|ready| ready.status == "True")
    }

    /// Since when a condition has another status than this; `None` if it has this status, or is missing.
    pub fn not_since(&self, kind: &str, status: &str) -> Option<Time> {
        let other = self
            .condition(kind)
            .filter(|condition| condition.status != status);
        other.and_then(|condition| condition.last_transition_time)
    }

    /// Since when the node is not ready; `None` if it is. One that does not report `Ready` has not been ready since it joined.
    pub fn not_ready_since(&self) -> Option<Time> {
        match self.condition("Ready") {
            Some(_) => self.not_since("Ready", "True"),
            None => self.metadata.creation_timestamp,
        }
    }

    /// Takes over the version after a write of this pass, so that the next write expects this version.
    pub fn written(&mut self, written: Written) {
        self.metadata.resource_version = written.resource_version;
    }
}

/// The result of the search for a machine's node.
#[allow(clippy::large_enum_variant, reason = "made once in a pass")]
#[derive(Clone, Debug, PartialEq)]
pub enum Search {
    /// The node exists and names the machine's VM.
    Ours(Node),
    /// There is no node of that name, or it does not name a VM yet.
    Missing,
    /// There is a node with this name, but it does not name the VM of this machine.
    Foreign {
        /// Whether the node was seen to name another VM. Otherwise the grant does not show it.
        seen: bool,
    },
}

/// Reads these parts of a Node, which must include `spec.providerID`. The node is the machine's only if it
/// names the machine's VM. A grant that reaches only related nodes does not show any other.
pub async fn find<T: Kind, C>(
    cx: &Context<T, C>,
    name: &str,
    provider_id: Option<&str>,
    parts: &[&str],
) -> Result<Search, Failure> {
    match cx.ask(cluster::object::<Node>(name).keep(parts)).await {
        Ok(node) if node.spec.provider_id.is_none() => Ok(Search::Missing),
        Ok(node) if node.spec.provider_id.as_deref() == provider_id => Ok(Search::Ours(node)),
        Ok(_) => Ok(Search::Foreign { seen: true }),
        Err(failure) if failure.code == Code::PermissionDenied => Ok(Search::Foreign { seen: false }),
        Err(failure) if failure.is_not_found() => Ok(Search::Missing),
        Err(failure) => Err(failure),
    }
}

/// Keeps new pods away from a Node.
pub fn cordon(node: &Node) -> Write {
    cluster::patch(node, json!({"spec": {"unschedulable": true}}))
}

/// Keeps new pods away from a Node, and adds a taint that says who did it. `node` is changed in the same way.
pub fn cordon_marked(node: &mut Node, mark: Taint) -> Write {
    let spec = &mut node.spec;
    spec.unschedulable = true;
    spec.taints.retain(|taint| !taint.is(&mark));
    spec.taints.push(mark);
    cluster::patch(
        node,
        json!({"spec": {"unschedulable": true, "taints": node.spec.taints}}),
    )
}

/// The patch of `spec` that allows pods on a Node again and removes this taint.
pub fn uncordoned(node: &Node, mark: &Taint) -> Value {
    let taints = node.spec.taints.iter().filter(|taint| !taint.is(mark));
    json!({"unschedulable": null, "taints": taints.collect::<Vec<_>>()})
}

/// Sets one condition of a Node and leaves the others as they were seen. `None` if the condition is already
/// so.
pub fn set_condition(node: &Node, kind: &str, status: &str, reason: &str, now: Time) -> Option<Write> {
    let before = node.condition(kind);
    if before.is_some_and(|before| before.status == status && before.reason.as_deref() == Some(reason)) {
        return None;
    }
    let since = before
        .filter(|before| before.status == status)
        .and_then(|before| before.last_transition_time);
    let mut conditions = node.status.conditions.clone();
    conditions.retain(|condition| condition.kind != kind);
    conditions.push(NodeCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: None,
        last_heartbeat_time: Some(now.whole_seconds()),
        last_transition_time: since.or(Some(now.whole_seconds())),
    });
    Some(cluster::patch(node, json!({"status": {"conditions": conditions}})).subresource("status"))
}
