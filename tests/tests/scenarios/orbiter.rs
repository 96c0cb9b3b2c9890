//! orbiter and orbiter-node-agent: (g) 1 to 16 of their specification, and bad input.
//!
//! One host has the binding of the Orb and one binding for the agent of each node. The fixture checks all the time that
//! at most one node may be changed, is changed, or is cordoned for a change.

mod crashes;
mod errata;
pub(crate) mod fixture;
mod leaving;
pub(crate) mod refusals;
mod scale;
mod upgrade;

/// Runs every scenario and records its passes.
pub(crate) fn recordings() -> Vec<std::path::PathBuf> {
    let all = [
        scale::recordings(),
        upgrade::recordings(),
        refusals::recordings(),
        leaving::recordings(),
        errata::recordings(),
    ];
    all.concat()
}
