//! The manifest, and the arrows of the drawing.

use polity_sdk::agent;
use polity_sdk::prelude::*;

use crate::config::Config;
use crate::own::OwnNode;

/// What the policy is, needs and writes.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<OwnNode>()
        .config::<Config>()
        .needs_cloud(agent::OPERATIONS)
        .writes(["metadata.annotations", "status.conditions[PackagesEnsured]"])
        .edges(EDGES.map(|(id, meaning)| Edge::noted(id, meaning)))
}

/// Each edge: its id and what it means. Those that are not here are orbiter's.
const EDGES: [(&str, &str); 10] = [
    (
        "ORB-06",
        "The machine is not prepared: its packages are installed, then it reboots once.",
    ),
    ("ORB-07", "The machine is prepared: that is said."),
    (
        "ORB-10",
        "The Node is there: what is wanted and what is installed is written down.",
    ),
    ("ORB-11", "Everything is as it is wanted: the metadata is read."),
    ("ORB-12", "The metadata is there: look again later."),
    ("ORB-20", "A change comes: ready is false from now on."),
    (
        "ORB-21",
        "Packages are installed, and what is installed is written down.",
    ),
    (
        "ORB-25",
        "What was installed needs a reboot: the machine reboots.",
    ),
    ("ORB-26", "Everything is as it is wanted: ready is true."),
    ("ORB-32", "The machine has rebooted: go on."),
];
