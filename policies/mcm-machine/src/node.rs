//! The machine's node.
//!
//! A label names it, and a tenant can write labels: only a Node that names this machine's VM is this machine's.

use mcm_api::Machine;
use polity_sdk::cloud::machine::Vm;
pub(crate) use polity_sdk::kube::node::Search;
use polity_sdk::kube::node::{self as nodes, Node};
use polity_sdk::prelude::*;

use crate::Cx;

/// What is read of a node to judge its health.
pub(crate) const HEALTH: &[&str] = &["spec.providerID", "spec.taints", "status.conditions"];
/// What is read to sync the template.
pub(crate) const TEMPLATE: &[&str] = &[
    "metadata.labels",
    "metadata.annotations",
    "spec.providerID",
    "spec.taints",
];
/// What is read to drain it and to delete it.
pub(crate) const ALL: &[&str] = Node::PROJECTION;

/// Looks for the machine's node, and at these parts of it.
pub(crate) async fn find(cx: &Cx, machine: &Machine, parts: &[&str]) -> Result<Search, Failure> {
    let provider_id = machine.status.provider_id.as_deref();
    match machine.node_name() {
        Some(name) => nodes::find(cx, name, provider_id, parts).await,
        None => Ok(Search::Missing),
    }
}

/// Whether a VM that was just made got the name of an older VM's node. Where that cannot be seen it did not: a machine
/// that never joins fails by its timeout.
pub(crate) async fn is_stale(cx: &Cx, machine: &Machine, vm: &Vm) -> bool {
    let Some(name) = vm
        .node_name
        .as_ref()
        .filter(|name| **name != machine.metadata.name)
    else {
        return false;
    };
    // A grant that reaches related nodes only shows none to a machine that has no VM on record before this pass ends.
    let unrelated = machine.status.provider_id.is_none();
    match nodes::find(cx, name, Some(&vm.provider_id), HEALTH).await {
        Ok(Search::Foreign { seen }) => seen || unrelated,
        _ => false,
    }
}
