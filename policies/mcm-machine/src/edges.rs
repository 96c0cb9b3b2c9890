//! The manifest, and the arrows of the drawings.

use mcm_api::{Config, FINALIZER, Machine, MachineClass, MachineSafety};
use polity_sdk::cloud::machine;
use polity_sdk::kube::drain::{self, Attachment, Volume};
use polity_sdk::kube::node::Node;
use polity_sdk::prelude::*;

/// The manifest: name, needs, writes and edges of the policy.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<Machine>()
        .crds([Machine::crd(), MachineClass::crd()])
        .finalizer(FINALIZER)
        .config::<Config>()
        .needs(Need::objects_of::<MachineClass>())
        .needs(Need::objects_of::<MachineSafety>())
        .needs(Need::objects_of::<Machine>())
        .needs_all(drain::needs())
        .needs(Need::objects_of::<Volume>())
        .needs(Need::Secrets)
        .needs(Need::Lock("deployment/*".into()))
        .needs(Need::delete_of::<Node>())
        .needs(Need::delete_of::<Attachment>())
        .needs(Need::Mint("bootstrap-token".into()))
        .needs_cloud(machine::OPERATIONS)
        .writes(WRITES.split_whitespace())
        .edges(Edge::table(EDGES))
}

const WRITES: &str = "metadata.finalizers metadata.labels.node metadata.annotations
    status.providerID status.createdAt status.deletedProviderID status.node status.currentStatus status.lastOperation status.lastKnownState
    status.nodeConditions status.bootstrapToken status.drain
    status.conditions[ClassValid] status.conditions[SafetyFound] status.conditions[Drained]
    status.conditions[Reconciled]";

/// One line for each edge: its id, its meaning, and how the host derives it if the policy does not note it.
const EDGES: &str = include_str!("edges.tsv");
