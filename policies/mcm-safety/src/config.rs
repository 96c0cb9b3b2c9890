//! The configuration, which a binding sets.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// How often the API server is probed while it answers.
    pub probe_period: Period,
    /// How often the API server is probed while it does not answer.
    pub probe_period_while_down: Period,
    /// How long the API server must not answer before machines are frozen. `spec.freezeAfter` comes first.
    pub freeze_after: Period,
    /// How often VMs without a Machine are looked for: `MachineSafetyOrphanVMsPeriod` of machine-controller-manager.
    pub sweep_period: Period,
    /// How long a VM must be known to have no Machine before that is reported. The longest time of a creation
    /// (`creationTimeout` of `mcm-machine`), so that no VM is meant whose creation is under way.
    pub orphan_after: Period,
    /// How long a VM must be known to have no Machine before it is deleted, for which the binding must grant
    /// `orphan.delete`. Without a value none is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_orphans_after: Option<Period>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            probe_period: Period::from_secs(60),
            probe_period_while_down: Period::from_secs(6),
            freeze_after: Period::from_secs(30),
            sweep_period: Period::from_secs(15 * 60),
            orphan_after: Period::from_secs(20 * 60),
            delete_orphans_after: None,
        }
    }
}
