//! rug-router: (g) 1 to 16 of its specification, what (i) adds to them, and what bad input gets.

mod changing;
mod crashes;
mod doubts;
mod ending;
pub(crate) mod letters;
mod living;
pub(crate) mod network;
mod refusals;

/// Runs every scenario and records its passes.
pub(crate) fn recordings() -> Vec<std::path::PathBuf> {
    let all = [
        living::recordings(),
        changing::recordings(),
        ending::recordings(),
        doubts::recordings(),
        letters::recordings(),
        refusals::recordings(),
    ];
    all.concat()
}
