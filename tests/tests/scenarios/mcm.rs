//! mcm-machine, mcm-machineclass, mcm-machineset and mcm-safety: (g) 1 to 17 of their specification, and what (i) adds to
//! them.

mod class;
pub(crate) mod creation;
pub(crate) mod deletion;
pub(crate) mod draining;
pub(crate) mod fixture;
mod freeze;
mod health;
mod orphans;
mod refusals;
mod set;
mod size;

/// Runs every scenario and records its passes.
pub(crate) fn recordings() -> Vec<std::path::PathBuf> {
    let all = [
        class::recordings(),
        creation::recordings(),
        health::recordings(),
        deletion::recordings(),
        draining::recordings(),
        freeze::recordings(),
        orphans::recordings(),
        refusals::recordings(),
        set::recordings(),
        size::recordings(),
    ];
    all.concat()
}
