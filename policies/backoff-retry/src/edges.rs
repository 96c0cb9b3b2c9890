//! The manifest. A retry policy takes no notes, so its workflow has no edges.

use polity_sdk::Manifest;

use crate::config::Config;

/// The manifest of the policy.
pub fn manifest() -> Manifest {
    Manifest::retry(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).config::<Config>()
}
