//! What `orbiter` and `orbiter-node-agent` share: the `Orb` (`orbiter.polity.dev`), the annotations by which they talk
//! on each Node, and what a version is.
//!
//! Data passes through as JSON, read into these types and written back as patches. Beside the kind stand the
//! configuration of `orbiter`, and what can be told of versions and of an Orb alone. Which step is next is decided
//! elsewhere.

mod config;
mod metadata;
mod orb;
mod spec;
mod stop;
mod version;

pub use config::Config;
pub use metadata::{
    CHANGES_ALLOWED, NodeMetadata, PACKAGES_ENSURED, READY, Versions, current_version, desired_version,
};
pub use orb::{
    Changing, Draining, FINALIZER, MachineStatus, ORB, Orb, OrbSpec, OrbStatus, Phase, PoolSpec, Task,
    TaskKind, Token, UPDATING,
};
pub use spec::KUBERNETES;
pub use stop::{Because, SOON, Stop};
pub use version::{NoStep, Release, is_package, is_version, next_step};

/// The group and version of these kinds.
pub const API_VERSION: &str = "orbiter.polity.dev/v1alpha1";
