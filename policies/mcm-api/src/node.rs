//! The node of the machine.
//!
//! A label names the node, and a tenant can write labels. So only a Node that names this machine's VM belongs to this
//! machine.

use polity_sdk::cloud::machine::Vm;
pub use polity_sdk::kube::node::Search;
use polity_sdk::kube::node::{self as nodes, Node};
use polity_sdk::prelude::*;

use crate::{Config, Machine};

/// A pass of a machine.
type Cx = Context<Machine, Config>;

/// The fields of a node for its health.
pub const HEALTH: &[&str] = &["spec.providerID", "spec.taints", "status.conditions"];
/// The fields for the template.
pub const TEMPLATE: &[&str] = &[
    "metadata.labels",
    "metadata.annotations",
    "spec.providerID",
    "spec.taints",
];
/// The fields for the drain and the deletion.
pub const ALL: &[&str] = Node::PROJECTION;

/// Looks for the machine's node, and reads these fields of it.
pub async fn find(cx: &Cx, machine: &Machine, parts: &[&str]) -> Result<Search, Failure> {
    let provider_id = machine.status.provider_id.as_deref();
    match machine.node_name() {
        Some(name) => nodes::find(cx, name, provider_id, parts).await,
        None => Ok(Search::Missing),
    }
}

/// Whether a new VM got the name of an older VM's node. If that cannot be checked, the answer is no: a machine that
/// never joins fails by its timeout.
pub async fn is_stale(cx: &Cx, machine: &Machine, vm: &Vm) -> bool {
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
