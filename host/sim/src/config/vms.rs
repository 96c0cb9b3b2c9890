//! What VMs are made of, and how long work on them takes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::between::Between;

/// Something that can be cloned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Template {
    /// Its name or path, as `vm.clone` names it.
    pub name: String,
    /// The networks of its NICs, for clones that name none.
    #[serde(default)]
    pub networks: Vec<String>,
    /// How many disks it has. Only a template with exactly one can be given another `diskGiB`.
    #[serde(default = "one")]
    pub disks: u32,
    /// Who may clone it; none listed: everybody.
    #[serde(default)]
    pub tenants: Vec<String>,
}

/// Something that NICs attach to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    /// As `vm.clone` names it.
    pub name: String,
    /// Whether NICs get an address.
    #[serde(default = "yes")]
    pub dhcp: bool,
    /// Whether NICs are connected while the VM is on.
    #[serde(default = "yes")]
    pub connected: bool,
}

/// How long each kind of task runs.
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
