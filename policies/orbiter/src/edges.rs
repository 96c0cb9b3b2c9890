//! The manifest, and the arrows of the drawing.

use orbiter_api::{Config, FINALIZER, Orb};
use polity_sdk::cloud::pool;
use polity_sdk::kube::drain;
use polity_sdk::kube::node::Node;
use polity_sdk::prelude::*;

/// The manifest: name, needs, writes and edges of the policy.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<Orb>()
        .crd(Orb::crd())
        .finalizer(FINALIZER)
        .config::<Config>()
        .needs_all(drain::needs())
        .needs(Need::delete_of::<Node>())
        .needs(Need::Mint("bootstrap-token".into()))
        .needs(Need::Mint("password".into()))
        .needs_cloud(pool::OPERATIONS)
        .writes(WRITES.split_whitespace())
        .edges(Edge::table(EDGES))
}

const WRITES: &str =
    "metadata.finalizers status.phase status.machines status.pools status.initialized status.tasks
    status.changing status.cursor status.draining status.conditions[Ready]";

/// One line for each edge: its id and its meaning.
const EDGES: &str = include_str!("edges.tsv");
