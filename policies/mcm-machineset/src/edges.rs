//! The manifest, and the arrows of the workflow.

use mcm_api::{Machine, MachineSet, SET_FINALIZER};
use polity_sdk::prelude::*;

use crate::config::Config;

/// The manifest: name, needs, writes and edges of the policy.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<MachineSet>()
        .crd(MachineSet::crd())
        .finalizer(SET_FINALIZER)
        .config::<Config>()
        .needs(Need::objects_of::<Machine>())
        .needs(Need::create_of::<Machine>())
        .needs(Need::patch_of::<Machine>())
        .needs(Need::delete_of::<Machine>())
        .writes([
            "metadata.finalizers",
            "status.replicas",
            "status.readyReplicas",
            "status.conditions[Reconciled]",
        ])
        .edges(Edge::table(EDGES))
}

/// One line for each edge: its id and its meaning.
const EDGES: &str = include_str!("edges.tsv");
