//! rug-router: (g) 1 to 16 of its specification, what (i) adds to them, and what bad input gets.

mod changing;
mod crashes;
mod doubts;
mod ending;
pub(crate) mod letters;
mod living;
mod network;
mod refusals;

/// Runs every scenario and records its passes.
pub(crate) fn record_all(folder: &std::path::Path) {
    living::record_all(folder);
    changing::record_all(folder);
    ending::record_all(folder);
    doubts::record_all(folder);
    letters::record_all(folder);
    refusals::record_all(folder);
}
