//! A simulated cloud, which behaves as badly as clouds do: VMs in the manner of vSphere, machines that join a cluster as
//! those of Gardener's drivers do, pools of machines whose agents prepare them for kubeadm, virtual routers in the
//! manner of Neutron and Nova, and accounts and roles in the manner of AWS.
//!
//! [`Sim`] is a state machine without clock and I/O: it is told the time, and chance comes from its seed. A simulation
//! drives it directly; [`SimCloud`] puts it behind the [`Cloud`](polity_clouds::Cloud) trait, on the host's clock.
//!
//! # Rooms
//!
//! | room | what it is |
//! |---|---|
//! | `kernel/` | time, chance, faults, tasks in progress, calls with their accounts, and what outlives the process; knows no service |
//! | `hypervisor/` | all VMs: names, power, tasks that change them, and a log of all effects |
//! | `services/` | one room for each service, with its own state, behind the trait `Service` |
//! | `event.rs` | what services tell each other |
//! | `sim.rs` | the whole: carries calls to services, and events to all of them |
//! | `config/` | what a cloud is like, and what a scenario makes go wrong |
//! | `persist.rs` | a cloud that outlives its process: every table of every room, and the head |
//! | `views.rs` | what only a simulation can tell: all there is, and all that happened |
//! | `cloud.rs`, `adapter.rs` | the cloud on a clock and on a disk, as a host opens it |
//! | `guards.rs` | what tests take away, to see that they notice |
//! | `kubelets.rs` | what kubelets of the machines would do to Node objects |
//!
//! Imports go one way: `sim → services → hypervisor → event → config → kernel`. No service imports another one.
//!
//! # Flow
//!
//! 1. A call comes in by [`Sim::perform`]. First everything happens that was due: tasks end, late effects arrive,
//!    operators intervene.
//! 2. The kernel lets the call through, or makes it fail or vanish as the scenario says.
//! 3. The session says who calls, and the catalogue which service performs the operation. **The effect comes before the
//!    answer.** The service works on VMs of the hypervisor and on its own tables; what takes longer is a task.
//! 4. What the service and the hypervisor have announced is carried to all services before anything else happens. So a
//!    VM that is turned off ends the boot of its agent, and makes its node fall silent, though none of the three knows
//!    the other two.
//! 5. The kernel delivers the answer: it is on its way for [`Reply::after_ms`], or lost.
//! 6. Every table has noted which of its records changed; [`SimCloud`] stores those before the answer leaves.
//!
//! # Guarantees
//!
//! - The same configuration, seed and calls give the same answers and the same [snapshot](Sim::snapshot).
//! - Of what others own nothing is told and nothing changed: by id `permission-denied`, by search `not-found`. What is
//!   in another account is `not-found` either way.
//! - A read by id never says `not-found` of a VM that exists in the account. A search may, for as long as `lag`.
//! - `task.get` never lags.
//! - What [`Sim::resolve`] calls absent does not appear later, if the call began within
//!   [`BEGINS_WITHIN`] of its pending entry and both were timed by one clock.
//! - A service that panics fails its own call. The others hear all that was announced, and keep what they have.
//!
//! # Caveats
//!
//! There are no hosts, datastores or capacities. Templates, networks, folders and flavors are names.

mod adapter;
mod cloud;
mod config;
mod event;
mod guards;
mod hypervisor;
mod kernel;
pub mod kubelets;
mod persist;
mod power;
mod services;
mod sim;
mod views;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod tests;

pub use adapter::ADAPTER;
pub use cloud::{SimCloud, Simulated};
pub use config::identity::{AccessKey, IamRole, IdentityProvider, Principal, WebIdentity};
pub use config::node_problem::NodeProblem;
pub use config::scenario::{FaultRule, Intervention, Span, Trouble, WorldEvent};
pub use config::{
    Account, Image, Machines, Network, Packages, PoolDurations, RouterPort, Routers, SimConfig,
    TaskDurations, Template, Tokens,
};
pub use guards::{Guard, Guards};
pub use hypervisor::effects::{Effect, Happened};
pub use kernel::between::Between;
pub use kernel::envelope::{LONGEST, Reply, lost};
pub use kernel::faults::{Outage, Unreachable};
pub use persist::RestoreError;
pub use polity_clouds::{Clock as SimClock, Millis};
pub use polity_core::catalogue::BEGINS_WITHIN;
pub use power::Power;
pub use services::cluster::{NodeCondition, NodeView};
pub use services::pool::PoolMachine;
pub use services::router::{PortView, RouterView};
pub use sim::Sim;
pub use views::VmView;
