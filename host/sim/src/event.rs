//! Events between services, and from a service to itself.

use serde::{Deserialize, Serialize};

use crate::config::scenario::{Intervention, Quirk};
use crate::kernel;
use crate::kernel::call::Stamp;
use crate::power::Power;

/// The kernel with the types of the simulated cloud.
pub(crate) type Kernel = kernel::Kernel<Event, Quirk>;
/// A call with the types of the simulated cloud.
pub(crate) type Call = kernel::call::Call<Quirk>;

/// Something that has happened. Every service hears of it. Things are named by the number of their VM.
///
/// An announced event reaches all services before anything else happens. A scheduled event reaches them at
/// its time; in this way a service also schedules its own work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Event {
    /// A VM was turned on or off; `None`: the VM is gone.
    PowerChanged { vm: u64, power: Option<Power> },
    /// A VM exists now.
    Created { vm: u64 },
    /// A VM was turned on by a call.
    Started { vm: u64 },
    /// Somebody changes a VM, or its node gets a problem.
    Intervened { vm: u64, does: Intervention },
    /// No trace of the VM can be seen any more.
    Forgotten { vm: u64 },
    /// A machine was created whose node joins by itself.
    MachineMade(MachineMade),
    /// A machine was created that joins when it is told to, and only after it was prepared.
    MachineAdded { vm: u64, node_name: String },
    /// An agent has prepared its machine.
    Prepared { vm: u64 },
    /// A machine has become a node, with a new object.
    NodeJoined { vm: u64 },
    /// A machine has booted: its node may join, or is heard of again.
    Booted { vm: u64 },
    /// The node of a removed machine is no longer shown.
    NodeForgotten { vm: u64 },
    /// Packages are installed, unless this work was interrupted.
    Installed { vm: u64, work: u64 },
    /// An agent reboots its machine.
    Rebooted { vm: u64 },
    /// A router's VM that is being removed is gone.
    RouterGone { vm: u64 },
}

/// A machine whose node joins by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineMade {
    pub(crate) vm: u64,
    /// The machine's name.
    pub(crate) name: String,
    pub(crate) node_name: String,
    pub(crate) stamp: Stamp,
    /// The digest of the token with which it joins.
    pub(crate) token: Option<String>,
    /// The milliseconds from boot to join; `None`: as configured.
    pub(crate) joins_after: Option<u64>,
    pub(crate) never_joins: bool,
}
