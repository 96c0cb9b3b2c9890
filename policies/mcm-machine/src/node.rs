//! The machine's node.
//!
//! A label names it, and a tenant can write labels: only a Node that names this machine's VM is this machine's.

use mcm_api::Machine;
use polity_sdk::node::Node;
use polity_sdk::prelude::*;

use crate::Cx;

/// What became of the search for the node.
#[allow(clippy::large_enum_variant, reason = "made once in a pass")]
pub(crate) enum Search {
    Ours(Node),
    /// There is none of that name, or none is named.
    Missing,
    /// Some Node of that name exists; nothing says that it is this machine's.
    Foreign,
}

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
    let Some(name) = machine.node_name() else {
        return Ok(Search::Missing);
    };
    match cx.ask(cluster::object::<Node>(name).keep(parts)).await {
        Ok(node) if node.spec.provider_id.is_none() => Ok(Search::Missing),
        Ok(node) if node.spec.provider_id == machine.status.provider_id => Ok(Search::Ours(node)),
        Ok(_) => Ok(Search::Foreign),
        // The grant reaches related nodes only.
        Err(failure) if failure.code == Code::PermissionDenied => Ok(Search::Foreign),
        Err(failure) if failure.is_not_found() => Ok(Search::Missing),
        Err(failure) => Err(failure),
    }
}

/// Whether the node of a VM that was just made is in truth that of an older one.
pub(crate) async fn is_stale(
    cx: &Cx,
    machine: &Machine,
    name: &str,
    provider_id: &str,
) -> Result<bool, Failure> {
    if name == machine.metadata.name {
        return Ok(false);
    }
    match cx.ask(cluster::object::<Node>(name).keep(HEALTH)).await {
        Ok(node) => Ok(node.spec.provider_id.is_some_and(|id| id != provider_id)),
        // Not related to this machine, which has no VM on record before this pass ends.
        Err(failure) if failure.code == Code::PermissionDenied => Ok(machine.status.provider_id.is_none()),
        Err(failure) if failure.is_not_found() => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// After a write to a node that failed: a conflict is somebody else's write, and nothing to worry about.
pub(crate) fn wait_after(failure: &Failure) -> RetryClass {
    match failure.code {
        Code::Aborted => RetryClass::Conflict,
        _ => RetryClass::Short,
    }
}
