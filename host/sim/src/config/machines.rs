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
    /// How long after that its node joins.
    pub join: Between,
    /// What nodes are called: `{name}` stands for the machine's name, `{number}` for a number that no other one has.
    pub node_name: String,
    /// How long a node is not heard of before it counts as unknown.
    pub grace: Millis,
    /// With which bootstrap tokens machines join.
    pub tokens: Tokens,
}

impl Default for Machines {
    fn default() -> Self {
        Machines {
            boot: Between::new(10_000, 40_000),
            join: Between::new(2_000, 30_000),
            node_name: "node-{name}".to_owned(),
            // kube-controller-manager's --node-monitor-grace-period, until Kubernetes 1.31.
            grace: Millis::seconds(40),
            tokens: Tokens::default(),
        }
    }
}

impl Machines {
    /// What the node of the machine of this name and number is called.
    pub(crate) fn node_name_of(&self, name: &str, number: u64) -> String {
        let pattern = self.node_name.replace("{name}", name);
        pattern.replace("{number}", &number.to_string())
    }
}

/// With which bootstrap tokens machines join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Tokens {
    /// With none, and with every one that is neither revoked nor known to have ended.
    #[default]
    Any,
    /// Only with one that the simulation was told of, by [`Sim::admit_token`](crate::Sim::admit_token).
    Minted,
}

/// How long work on machines of pools takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PoolDurations {
    /// Until a node agent is installed.
    pub install: Between,
    /// Until the first node is made.
    pub init: Between,
    /// Until a machine has joined.
    pub join: Between,
    /// Until a machine is gone.
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

/// What agents can install on machines of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Packages {
    /// How long that takes.
    pub takes: Between,
    /// The versions that there are. A package that is not listed has every version.
    pub known: BTreeMap<String, Vec<String>>,
    /// Packages whose change wants a reboot.
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
