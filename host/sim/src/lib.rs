//! A simulated cloud, which behaves as badly as clouds do: VMs in the manner of vSphere, machines that join a cluster as
//! those of Gardener's drivers do, pools of machines whose agents prepare them for kubeadm, virtual routers in the
//! manner of Neutron and Nova, and accounts and roles in the manner of AWS.
//!
//! [`Sim`] is a state machine without clock and I/O: it is told the time, and chance comes from its seed. A simulation
//! drives it directly; [`SimCloud`] puts it behind the [`Cloud`](polity_clouds::Cloud) trait, on the driver's clock.
//!
//! # Flow
//!
//! [`Sim::perform`] first lets everything happen that was due (tasks end, late effects arrive, operators intervene),
//! then asks the scenario whether this call goes wrong, then performs it. **The effect comes before the answer**, which
//! is on its way for [`Reply::after_ms`], or lost.
//!
//! # Guarantees
//!
//! - The same configuration, seed and calls give the same answers and the same [snapshot](Sim::snapshot).
//! - Of what others own nothing is told and nothing changed: by id `permission-denied`, by search `not-found`. What is
//!   in another account is `not-found` either way.
//! - A read by id never says `not-found` of a VM that exists in the account. A search may, for as long as `lag`.
//! - `task.get` never lags.
//! - What [`Sim::settle`] calls absent does not appear later, if the call began within
//!   [`BEGINS_WITHIN`] of its pending entry and both were timed by one clock.
//!
//! # Caveats
//!
//! There are no hosts, datastores or capacities. Templates, networks, folders and flavors are names.

mod adapter;
mod catalogue;
mod cloud;
mod config;
mod hypervisor;
mod kernel;
pub mod kubelets;
mod lag;
mod persist;
mod services;
mod settle;
mod view;
mod world;

use std::sync::Arc;

use polity_core::catalogue::Catalogue;
use polity_core::contract::{Answer, Code, Failure};

use polity_clouds::Checked;
use world::World;

pub use adapter::ADAPTER;
pub use cloud::{SimCloud, Simulated};
pub use config::ailment::Ailment;
pub use config::identity::{AccessKey, IamRole, IdentityProvider, Principal, WebIdentity};
pub use config::scenario::{FaultRule, Intervention, Outage, Span, Trouble, Unreachable, WorldEvent};
pub use config::{
    Account, Image, Machines, Network, Packages, PoolDurations, RouterPort, Routers, SimConfig,
    TaskDurations, Template, Tokens,
};
pub use hypervisor::vm::Power;
pub use kernel::between::Between;
pub use kernel::tasks::TaskKind;
pub use persist::RestoreError;
pub use polity_clouds::Clock as SimClock;
pub use polity_clouds::Millis;
pub use polity_clouds::catalogue::LONGEST;
pub use polity_core::catalogue::BEGINS_WITHIN;
pub use services::cluster::node::{NodeCondition, NodeView};
pub use services::router::view::{PortView, RouterView};
pub use view::{Effect, Happened, PoolMachine, VmView};

/// A simulated cloud.
pub struct Sim {
    config: SimConfig,
    checked: Checked,
    world: World,
    /// Every effect so far; none when nobody reads it.
    log: Option<Vec<Effect>>,
    /// Something changed that a restart must not forget.
    dirty: bool,
    /// A guard that tests take away: see [`Sim::settle_without_a_look`].
    blindly: bool,
    /// Another: see [`Sim::reboot_under_any_boot`].
    reboots_blindly: bool,
}

/// What a caller gets, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Milliseconds until the answer is there; of a lost one, until the call is cut.
    pub after_ms: u64,
    /// None: it is lost. The caller sees [`lost`].
    pub answer: Option<Answer>,
}

/// What a caller makes of an answer that did not come: `deadline-exceeded`; `read`: nothing has changed.
pub fn lost(operation: &str, read: bool) -> Failure {
    let failure = Failure::new(
        Code::DeadlineExceeded,
        format!("{operation}: no answer within {LONGEST} ms"),
    );
    if read { failure } else { failure.effect_unknown() }
}

impl Sim {
    /// An empty cloud at this moment (Unix milliseconds), from which the configuration's times are counted.
    pub fn new(config: SimConfig, seed: u64, start_ms: u64) -> Self {
        let world = World::new(&config, seed, start_ms);
        Self::with_world(config, world)
    }

    fn with_world(config: SimConfig, world: World) -> Self {
        let checked = Checked::new(Arc::new(catalogue::catalogue(&config))).expect("our own schemas compile");
        Sim {
            config,
            checked,
            world,
            log: Some(Vec::new()),
            dirty: false,
            blindly: false,
            reboots_blindly: false,
        }
    }

    /// Counts the configuration's times from this moment, unless somebody has called it already.
    pub fn begin(&mut self, now_ms: u64) {
        let new = World::new(&self.config, self.world.head.seed, now_ms);
        if self.world.is_untouched(&new) {
            self.world.begin_again(new);
            self.dirty = true;
        }
    }

    /// What it can do.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        self.checked.catalogue()
    }

    /// The latest time it was told; Unix milliseconds.
    pub fn now(&self) -> u64 {
        self.world.head.now
    }
}

#[cfg(test)]
mod tests;
