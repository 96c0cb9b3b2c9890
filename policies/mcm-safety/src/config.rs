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
}

impl Default for Config {
    fn default() -> Self {
        Config {
            probe_period: Period::from_secs(60),
            probe_period_while_down: Period::from_secs(6),
            freeze_after: Period::from_secs(30),
        }
    }
}
