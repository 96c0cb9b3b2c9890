//! What services tell each other, and themselves.

use serde::{Deserialize, Serialize};

use crate::config::scenario::{Intervention, Quirk};
use crate::kernel;
use crate::kernel::call::Stamp;
use crate::power::Power;

/// The kernel, with the words of the simulated cloud.
pub(crate) type Kernel = kernel::Kernel<Event, Quirk>;
/// A call, with the words of the simulated cloud.
pub(crate) type Call = kernel::call::Call<Quirk>;

/// Something that has happened, of which every service hears. Things are known by the number of their VM.
///
/// Announced, it is carried to all services before anything else happens. Scheduled, it is carried to them at its time:
/// what a service does later it tells itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Event {
    /// A VM was turned on or off; none: it is gone.
    PowerChanged { vm: u64, power: Option<Power> },
    /// A VM is there.
    Appeared { vm: u64 },
    /// A VM was turned on because a caller wanted it.
    Started { vm: u64 },
    /// Somebody does something to a VM, or something befalls its node.
    Intervened { vm: u64, does: Intervention },
    /// Nobody can see a trace of the VM any more.
    Forgotten { vm: u64 },
    /// A machine was made whose node joins by itself.
    MachineMade(MachineMade),
    /// A machine was made that joins when it is told to, and only once it is prepared.
    MachineAdded { vm: u64, node_name: String },
    /// An agent has prepared its machine.
    Prepared { vm: u64 },
    /// A machine is a node from now on, with another object than before.
    NodeJoined { vm: u64 },
    /// A machine has booted: its node may join, or is heard of again.
    Booted { vm: u64 },
    /// Nobody remembers the node of a machine that is gone.
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
    /// The digest of the token it joins with.
    pub(crate) token: Option<String>,
    /// Milliseconds after it has booted; none: as the configuration says.
    pub(crate) joins_after: Option<u64>,
    pub(crate) never_joins: bool,
}
