//! Nodes: the state of a machine in the cluster that it joins, as data. The kubelets make objects of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::api_server::ApiServer;
use crate::config::node_problem::NodeProblem;
use crate::hypervisor::vm::provider_id;
use crate::kernel::call::Stamp;

/// The node of a machine, from the creation of the machine on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    /// The machine's name.
    pub(crate) machine: String,
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    /// The digest of the token with which it joins.
    pub(crate) token: Option<String>,
    /// The milliseconds from boot to join; `None`: as configured.
    pub(crate) joins_after: Option<u64>,
    pub(crate) never: bool,
    /// When the machine has booted after the last power-on.
    pub(crate) booted: u64,
    pub(crate) joined: Option<u64>,
    pub(crate) left: Option<u64>,
    /// When the machine was removed.
    pub(crate) gone: Option<u64>,
    /// Since when the node is silent.
    pub(crate) silent: Option<u64>,
    /// Since when the node is heard of and has no other problems than these.
    pub(crate) well: u64,
    pub(crate) problems: BTreeMap<NodeProblem, u64>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) taints: Vec<Value>,
    /// The time of joining for which a Node was registered.
    #[serde(default)]
    pub(crate) registered: Option<u64>,
    /// The time of leaving for which the Node was deleted.
    #[serde(default)]
    pub(crate) deregistered: Option<u64>,
}

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The name of the Node. Two machines may share one if the scenario says so.
    pub name: String,
    /// `spec.providerID`
    pub provider_id: String,
    /// The machine's name.
    pub machine: String,
    /// The uid of the object that the machine was made for.
    pub owner: String,
    /// The tenant of that object.
    pub tenant: String,
    /// The labels with which it joined.
    pub labels: BTreeMap<String, String>,
    /// The taints with which it joined.
    pub taints: Vec<Value>,
    /// When it joined for the last time, in Unix milliseconds. A Node is created then. If somebody deletes
    /// the Node later, a running kubelet does not create it again.
    pub joined: u64,
    /// When it left the cluster. Its Node is deleted then; the machine runs on.
    pub left: Option<u64>,
    /// When its machine was removed. Its Node stays and falls silent.
    pub gone: Option<u64>,
    /// Whether a Node was created since it joined: [`Sim::note_registered`](crate::Sim::note_registered).
    pub registered: bool,
    /// Whether the Node was deleted since it left: [`Sim::note_deregistered`](crate::Sim::note_deregistered).
    pub deregistered: bool,
    /// Whether the condition `Ready` is true.
    pub ready: bool,
    /// Whether its kubelet runs, whatever the cluster knows of it. It then ends deleted pods.
    pub heard: bool,
    /// `Ready` first, then the conditions of problems.
    pub conditions: Vec<NodeCondition>,
    /// When the last condition changed, in Unix milliseconds.
    pub since: u64,
}

/// One condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    /// `Ready`, `DiskPressure` and so on.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// Unix milliseconds.
    pub since: u64,
}

impl Node {
    /// The present state, if the node has joined.
    pub(super) fn view(&self, now: u64, number: u64, api_server: &ApiServer) -> Option<NodeView> {
        let joined = self.joined?;
        let conditions = self.conditions(now, joined, api_server);
        let since = conditions.iter().map(|condition| condition.since).max();
        Some(NodeView {
            name: self.name.clone(),
            provider_id: provider_id(number),
            machine: self.machine.clone(),
            owner: self.stamp.owner.clone(),
            tenant: self.stamp.tenant.clone(),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            joined,
            left: self.left,
            gone: self.gone,
            registered: self.registered == self.joined,
            deregistered: self.deregistered == self.left,
            ready: conditions[0].status == "True",
            heard: self.silent.is_none() && self.left.is_none() && api_server.back(now).is_none(),
            since: since.unwrap_or(joined),
            conditions,
        })
    }

    fn conditions(&self, now: u64, joined: u64, api_server: &ApiServer) -> Vec<NodeCondition> {
        let unknown = api_server.unheard(now, self.silent);
        let well = self.well.max(api_server.heard_again(now)).max(joined);
        let one = |kind, problem, bad: &'static str, good: &'static str| {
            let (status, reason, since) = match (unknown, self.problems.get(&problem)) {
                (Some(since), _) => ("Unknown", "NodeStatusUnknown", since),
                (None, Some(since)) => (bad, "NodeProblem", *since),
                (None, None) => (good, "Well", well),
            };
            NodeCondition {
                kind,
                status,
                reason,
                since,
            }
        };
        let ready = one("Ready", NodeProblem::NotReady, "False", "True");
        let others = NodeProblem::CONDITIONS.into_iter();
        let others = others.map(|(problem, kind)| one(kind, problem, "True", "False"));
        std::iter::once(ready).chain(others).collect()
    }
}

#[cfg(test)]
mod tests;
