//! orbiter and orbiter-node-agent: (g) 1 to 16 of their specification, and what bad input gets.
//!
//! One host has the binding of the Orb and one for the agent of each node. What always holds the land watches: at most
//! one node may be changed, is changed, or is cordoned for it.

mod crashes;
mod errata;
mod land;
mod leaving;
mod refusals;
mod scale;
mod upgrade;

/// Runs every scenario and records its passes.
pub(crate) fn record_all(folder: &std::path::Path) {
    scale::record_all(folder);
    upgrade::record_all(folder);
    refusals::record_all(folder);
    leaving::record_all(folder);
    errata::record_all(folder);
}
