//! The manifest, and the arrows of the workflow.

use mcm_api::{CLASS_FINALIZER, Machine, MachineClass};
use polity_sdk::prelude::*;

/// The manifest: name, needs, writes and edges of the policy.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<MachineClass>()
        .crd(MachineClass::crd())
        .finalizer(CLASS_FINALIZER)
        .needs(Need::objects_of::<Machine>())
        .writes(["metadata.finalizers"])
        .edges(Edge::table(EDGES))
}

/// One line for each edge: its id and its meaning.
const EDGES: &str = include_str!("edges.tsv");
