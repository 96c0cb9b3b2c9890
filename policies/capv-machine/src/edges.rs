//! The manifest, and the arrows of the drawing.

use polity_sdk::cloud::vm;
use polity_sdk::prelude::*;

use crate::config::Config;
use crate::object::{FINALIZER, Machine};

/// The manifest: name, needs, writes and edges of the policy.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<Machine>()
        .crd(crd())
        .finalizer(FINALIZER)
        .config::<Config>()
        .needs_cloud(vm::OPERATIONS)
        .writes([
            "metadata.finalizers",
            "status.phase",
            "status.machineRef",
            "status.cloned",
            "status.biosUUID",
        ])
        .writes([
            "status.taskRef",
            "status.taskKind",
            "status.taskSince",
            "status.retryAfter",
        ])
        .writes([
            "status.network",
            "status.addresses",
            "status.conditions[VMProvisioned]",
            "status.conditions[UpToDate]",
            "status.conditions[Reconciled]",
        ])
        .edges(Edge::table(EDGES))
}

fn crd() -> Crd {
    Crd::of::<Machine>("machines")
        .short_name("vm")
        .column("Phase", ".status.phase")
        .column("VM", ".status.machineRef")
        .column("Task", ".status.taskKind")
        .column("Addresses", ".status.addresses")
        .age_column("Age", ".metadata.creationTimestamp")
}

/// One line for each edge: its id, its meaning, and how the host derives it if the policy does not note it.
const EDGES: &str = include_str!("edges.tsv");
