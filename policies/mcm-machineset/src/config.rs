//! The configuration, which a binding sets.

use polity_sdk::prelude::*;

/// The configuration of this policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The time between passes of a set that is as it should be. The default is that of `reconcileClusterMachineSet` of
    /// machine-controller-manager (`pkg/controller/machineset.go`).
    pub resync: Period,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            resync: Period::from_secs(600),
        }
    }
}
