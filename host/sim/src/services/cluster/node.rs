//! Nodes: what a machine is in the cluster that it joins, as data. Whoever plays the cluster makes objects of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::api_server::ApiServer;
use crate::config::ailment::Ailment;
use crate::hypervisor::vm::provider_id;
use crate::kernel::call::Stamp;

/// The node of a machine, from the machine's creation on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    /// The machine's name.
    pub(crate) machine: String,
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    /// The digest of the token it joins with.
    pub(crate) token: Option<String>,
    /// Milliseconds after it has booted; none: as the configuration says.
    pub(crate) joins_after: Option<u64>,
    pub(crate) never: bool,
    /// When the machine has booted, the last time that it was turned on.
    pub(crate) booted: u64,
    pub(crate) joined: Option<u64>,
    pub(crate) left: Option<u64>,
    /// When the machine was removed.
    pub(crate) gone: Option<u64>,
    /// Since when it is not heard of.
    pub(crate) silent: Option<u64>,
    /// Since when it is heard of, and has no other ailments than these.
    pub(crate) well: u64,
    pub(crate) ailments: BTreeMap<Ailment, u64>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) taints: Vec<Value>,
    /// For which joining there is, or was, a Node.
    #[serde(default)]
    pub(crate) registered: Option<u64>,
    /// For which leaving the Node was deleted.
    #[serde(default)]
    pub(crate) deregistered: Option<u64>,
}

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// `metadata.name`; two machines may share one if the scenario says so.
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
    /// When it joined, the last time; Unix milliseconds. This is the moment to create a Node: one that somebody
    /// deletes later is not made again by a kubelet that runs on.
    pub joined: u64,
    /// When it left the cluster: the moment to delete its Node. The machine runs on.
    pub left: Option<u64>,
    /// When its machine was removed. Its Node stays, and is not heard of any more.
    pub gone: Option<u64>,
    /// There is, or was, a Node since it joined: [`Sim::note_registered`](crate::Sim::note_registered).
    pub registered: bool,
    /// It was deleted since the machine left: [`Sim::note_deregistered`](crate::Sim::note_deregistered).
    pub deregistered: bool,
    /// The condition `Ready` is true.
    pub ready: bool,
    /// Its kubelet is at work, whatever anybody believes of it: it ends the pods that are to end.
    pub heard: bool,
    /// `Ready` first, then what can be wrong.
    pub conditions: Vec<NodeCondition>,
    /// When the last of the conditions came about; Unix milliseconds.
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
    /// As it is now, if it has joined.
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
        let one = |kind, ailment, bad: &'static str, good: &'static str| {
            let (status, reason, since) = match (unknown, self.ailments.get(&ailment)) {
                (Some(since), _) => ("Unknown", "NodeStatusUnknown", since),
                (None, Some(since)) => (bad, "Ails", *since),
                (None, None) => (good, "Well", well),
            };
            NodeCondition {
                kind,
                status,
                reason,
                since,
            }
        };
        let ready = one("Ready", Ailment::NotReady, "False", "True");
        let others = Ailment::CONDITIONS.into_iter();
        let others = others.map(|(ailment, kind)| one(kind, ailment, "True", "False"));
        std::iter::once(ready).chain(others).collect()
    }
}

#[cfg(test)]
mod tests;
