//! The parts of VMs, and how long tasks on VMs take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::between::Between;

/// A template that can be cloned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Template {
    /// The name or path by which `vm.clone` names it.
    pub name: String,
    /// The networks of its NICs, for clones that name none.
    #[serde(default)]
    pub networks: Vec<String>,
    /// The number of its disks. Only a template with exactly one disk can be cloned with another `diskGiB`.
    #[serde(default = "one")]
    pub disks: u32,
    /// The tenants that may clone it. An empty list allows all.
    #[serde(default)]
    pub tenants: Vec<String>,
}

/// A network that NICs attach to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    /// The name by which `vm.clone` names it.
    pub name: String,
    /// Whether NICs get an address.
    #[serde(default = "yes")]
    pub dhcp: bool,
    /// Whether NICs are connected while the VM is on.
    #[serde(default = "yes")]
    pub connected: bool,
}

/// How long each kind of task takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[allow(missing_docs, reason = "named as the operations are")]
pub struct TaskDurations {
    pub clone: Between,
    pub reconfigure: Between,
    pub power_on: Between,
    pub power_off: Between,
    pub destroy: Between,
    pub push: Between,
}

impl Default for TaskDurations {
    fn default() -> Self {
        TaskDurations {
            clone: Between::new(20_000, 90_000),
            reconfigure: Between::new(1_000, 5_000),
            power_on: Between::new(2_000, 8_000),
            power_off: Between::new(2_000, 8_000),
            destroy: Between::new(3_000, 10_000),
            push: Between::new(1_000, 5_000),
        }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}
