//! The node of the machine.
//!
//! A label names the node, and a tenant can write labels. So only a Node that names this machine's VM belongs to this
//! machine.

use mcm_api::Machine;
use polity_sdk::cloud::machine::Vm;
pub(crate) use polity_sdk::kube::node::Search;
use polity_sdk::kube::node::{self as nodes, Node};
use polity_sdk::prelude::*;

use crate::Cx;

/// The fields of a node for its health.
pub(crate) const HEALTH: &[&str] = &["spec.providerID", "spec.taints", "status.conditions"];
/// The fields for the template.
pub(crate) const TEMPLATE: &[&str] = &[
    "metadata.labels",
    "metadata.annotations",
    "spec.providerID",
    "spec.taints",
];
/// The fields for the drain and the deletion.
pub(crate) const ALL: &[&str] = Node::PROJECTION;

/// Looks for the machine's node, and reads these fields of it.
pub(crate) async fn find(cx: &Cx, machine: &Machine, parts: &[&str]) -> Result<Search, Failure> {
    let provider_id = machine.status.provider_id.as_deref();
    match machine.node_name() {
        Some(name) => nodes::find(cx, name, provider_id, parts).await,
        None => Ok(Search::Missing),
    }
}

/// Whether a new VM got the name of an older VM's node. If that cannot be checked, the answer is no: a machine that
/// never joins fails by its timeout.
pub(crate) async fn is_stale(cx: &Cx, machine: &Machine, vm: &Vm) -> bool {
    let Some(name) = vm
        .node_name
        .as_ref()
        .filter(|name| **name != machine.metadata.name)
    else {
        return false;
    };
    // The machine has no recorded VM before this pass ends. Until then a grant that reaches only related nodes shows
    // none.
    let unrelated = machine.status.provider_id.is_none();
    match nodes::find(cx, name, Some(&vm.provider_id), HEALTH).await {
        Ok(Search::Foreign { seen }) => seen || unrelated,
        _ => false,
    }
}
