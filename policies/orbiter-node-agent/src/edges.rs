//! The manifest, and the arrows of the drawing.

use polity_sdk::cloud::agent;
use polity_sdk::prelude::*;

use crate::config::Config;
use crate::own::OwnNode;

/// The manifest: name, needs, writes and edges of the policy.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<OwnNode>()
        .config::<Config>()
        .needs_cloud(agent::OPERATIONS)
        .writes(["metadata.annotations", "status.conditions[PackagesEnsured]"])
        .edges(Edge::table(EDGES))
}

/// One line for each edge: its id and its meaning.
const EDGES: &str = include_str!("edges.tsv");
