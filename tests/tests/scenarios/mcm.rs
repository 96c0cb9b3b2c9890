//! mcm-machine and mcm-safety: (g) 1 to 17 of their specification, and what (i) adds to them.

mod creation;
mod deletion;
mod draining;
mod freeze;
mod garden;
mod health;
mod refusals;

/// Runs every scenario and records its passes.
pub(crate) fn record_all(folder: &std::path::Path) {
    creation::record_all(folder);
    health::record_all(folder);
    deletion::record_all(folder);
    draining::record_all(folder);
    freeze::record_all(folder);
    refusals::record_all(folder);
}
