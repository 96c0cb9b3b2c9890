//! How machines become nodes, and what agents do on them.

use std::collections::BTreeMap;

use polity_clouds::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::between::Between;

/// How machines become nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Machines {
    /// How long a machine takes to boot.
    pub boot: Between,
    /// How long after the boot its node joins.
    pub join: Between,
    /// The names of nodes: `{name}` stands for the machine's name, `{number}` for a unique number.
    pub node_name: String,
    /// Whether `machine.initialize` must set up what a creation leaves open. A machine joins without that too.
    pub needs_initialization: bool,
    /// The most machines that one list can have; a longer list is refused with `resource-exhausted`. On EC2, an answer has so
    /// many pages and bytes at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_list: Option<u64>,
    /// How long a node can be silent before its state is unknown.
    pub grace: Millis,
    /// The bootstrap tokens with which machines can join.
    pub tokens: Tokens,
}

impl Default for Machines {
    fn default() -> Self {
        Machines {
            boot: Between::new(10_000, 40_000),
            join: Between::new(2_000, 30_000),
            node_name: "node-{name}".to_owned(),
            needs_initialization: false,
            longest_list: None,
            // The default of kube-controller-manager's --node-monitor-grace-period until Kubernetes 1.31.
            grace: Millis::seconds(40),
            tokens: Tokens::default(),
        }
    }
}

impl Machines {
    /// The name of the node of a machine with this name and number.
    pub(crate) fn node_name_of(&self, name: &str, number: u64) -> String {
        let pattern = self.node_name.replace("{name}", name);
        pattern.replace("{number}", &number.to_string())
    }
}

/// The bootstrap tokens with which machines can join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Tokens {
    /// Machines join without a token, and with any token that is neither revoked nor known to have expired.
    #[default]
    Any,
    /// Machines join only with a token that the simulation was told of.
    Minted,
}

/// How long work on machines of pools takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PoolDurations {
    /// To install a node agent.
    pub install: Between,
    /// To create the first node.
    pub init: Between,
    /// To join a machine.
    pub join: Between,
    /// To remove a machine.
    pub remove: Between,
}

impl Default for PoolDurations {
    fn default() -> Self {
        PoolDurations {
            install: Between::new(10_000, 40_000),
            init: Between::new(30_000, 120_000),
            join: Between::new(10_000, 60_000),
            remove: Between::new(5_000, 20_000),
        }
    }
}

/// The packages that agents can install on machines of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Packages {
    /// How long an installation takes.
    pub takes: Between,
    /// The versions that exist. A package that is not listed has every version.
    pub known: BTreeMap<String, Vec<String>>,
    /// The packages whose change needs a reboot.
    pub reboot_for: Vec<String>,
}

impl Default for Packages {
    fn default() -> Self {
        Packages {
            takes: Between::new(10_000, 60_000),
            known: BTreeMap::new(),
            reboot_for: vec!["linux-image-amd64".to_owned()],
        }
    }
}
