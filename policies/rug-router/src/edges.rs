//! The manifest, and the arrows of the drawing.

use polity_sdk::cloud::router;
use polity_sdk::prelude::*;

use crate::config::Config;
use crate::object::{FINALIZER, Router};

/// The manifest: name, needs, writes and edges of the policy.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<Router>()
        .crd(
            Crd::of::<Router>("routers")
                .column("Phase", ".status.machineState")
                .column("Action", ".status.action")
                .column("VM", ".status.vm")
                .column("Neutron", ".status.neutronStatus")
                .age_column("Age", ".metadata.creationTimestamp"),
        )
        .finalizer(FINALIZER)
        .config::<Config>()
        .needs_cloud(router::OPERATIONS)
        .writes(WRITES.split_whitespace())
        .edges(Edge::table(EDGES))
}

const WRITES: &str = "metadata.finalizers status.machineState status.action status.vm status.queue status.bootAttempts
    status.lastErrorTime status.neutronStatus status.rebuildImageUUID status.observedGeneration status.readRequest
    status.rebuildRequest status.nextPoll status.instance status.ports status.withheld status.push status.plugSince status.plugging
    status.traffic status.trafficTime status.conditions[Ready] status.conditions[PortsPlugged] status.conditions[RebuildTaken]
    status.conditions[Debugging]";

/// One line for each edge: its id, its meaning, and how the host derives it if the policy does not note it.
const EDGES: &str = include_str!("edges.tsv");
