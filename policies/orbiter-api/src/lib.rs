//! The parts that `orbiter` and `orbiter-node-agent` share: the `Orb` (`orbiter.polity.dev`), the annotations
//! of a Node with which they communicate, versions, and how `orbiter` looks at its machines and their Nodes.
//!
//! Data comes as JSON, is read into these types, and is written back as patches. This crate also has the
//! configuration of `orbiter`, and functions that need only versions or an Orb. It does not decide which step
//! comes next.

mod config;
mod fleet;
mod metadata;
mod nodes;
mod orb;
mod spec;
mod stop;
mod version;

pub use config::Config;
pub use fleet::{Fleet, Member, PARTS};
pub use metadata::{
    CHANGES_ALLOWED, NodeMetadata, PACKAGES_ENSURED, READY, UPGRADE, Versions, current_version,
    desired_version,
};
pub use nodes::{page, whole};
pub use orb::{
    Changing, Draining, FINALIZER, MachineStatus, ORB, Orb, OrbSpec, OrbStatus, Phase, PoolSpec, Task,
    TaskKind, Token, UPDATING,
};
pub use spec::KUBERNETES;
pub use stop::{Because, SOON, Stop};
pub use version::{NoStep, Release, is_package, is_version, next_step};

use polity_sdk::prelude::*;

/// A pass of `orbiter`.
pub type Cx = Context<Orb, Config>;

/// The most objects that a pass reads or works on one by one. The journal of a pass has 1,024 entries.
pub const AT_ONCE: usize = 100;
/// The label of a Node: the pool of its machine.
pub const POOL: &str = "orbiter.polity.dev/pool";
/// The label of a Node: its page, so that the Nodes of a large pool can be read in parts.
pub const PAGE: &str = "orbiter.polity.dev/page";

/// The group and version of these kinds.
pub const API_VERSION: &str = "orbiter.polity.dev/v1alpha1";
