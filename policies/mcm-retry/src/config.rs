//! What the binding can set.

use polity_sdk::prelude::*;

/// The periods. The defaults are those of machine-controller-manager (`machineutils/utils.go`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Somebody else's write came first.
    pub conflict: Period,
    /// Something is under way, or may work soon.
    pub short: Period,
    /// Something has to change first, which usually does.
    pub medium: Period,
    /// Somebody has to change something.
    pub long: Period,
    /// A quota or a capacity is used up, whatever the class, conflicts aside. As long as the class says if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_exhausted: Option<Period>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            conflict: Period::from_millis(200),
            short: Period::from_secs(5),
            medium: Period::from_secs(180),
            long: Period::from_secs(600),
            resource_exhausted: None,
        }
    }
}
