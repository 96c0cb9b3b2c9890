//! The manifest, and the arrows of the workflow.

use mcm_api::MachineSafety;
use polity_sdk::prelude::*;

use crate::PROBE;
use crate::config::Config;

/// What the policy is, needs and writes.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<MachineSafety>()
        .crd(
            Crd::of::<MachineSafety>("machinesafeties")
                .column("Frozen", ".status.frozen")
                .column("Reason", ".status.reason")
                .age_column("Since", ".status.since"),
        )
        .config::<Config>()
        .needs_cloud([PROBE])
        .writes([
            "status.frozen",
            "status.since",
            "status.reason",
            "status.downSince",
            "status.conditions[Reachable]",
        ])
        .edges(EDGES.map(|(id, meaning)| Edge::noted(id, meaning)))
}

/// Each edge: its id and what it means.
const EDGES: [(&str, &str); 6] = [
    ("MCM-F01", "The API server answers."),
    ("MCM-F02", "The API server does not answer, or nobody can tell."),
    (
        "MCM-F03",
        "It has not answered for a short time only: ask again soon.",
    ),
    ("MCM-F04", "It has not answered for too long: frozen from now on."),
    ("MCM-F05", "It still does not answer: frozen."),
    ("MCM-F06", "It answers again: thawed."),
];
