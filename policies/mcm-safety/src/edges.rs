//! The manifest, and the arrows of the workflow.

use mcm_api::MachineSafety;
use polity_sdk::prelude::*;

use crate::config::Config;

/// The manifest: name, needs, writes and edges of the policy.
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
        .needs(Need::Reachable)
        .writes([
            "status.frozen",
            "status.since",
            "status.reason",
            "status.downSince",
            "status.sweptAt",
            "status.orphans",
            "status.conditions[Reachable]",
            "status.conditions[Swept]",
        ])
        .edges(Edge::table(EDGES))
}

/// One line for each edge: its id and its meaning.
const EDGES: &str = include_str!("edges.tsv");
