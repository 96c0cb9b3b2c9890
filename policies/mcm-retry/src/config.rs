//! The configuration, which a binding sets.

use polity_sdk::prelude::*;

/// The periods. The defaults are those of machine-controller-manager (`machineutils/utils.go`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The wait after another writer changed the object first.
    pub conflict: Period,
    /// The wait if work is under way, or the request may succeed soon.
    pub short: Period,
    /// The wait if something must change first, which it usually does.
    pub medium: Period,
    /// The wait if a person must change something. It ends early when an object changes that the pass used.
    pub long: Period,
    /// The wait if a quota or a capacity is used up, for every class except conflicts. If it is not set, the class
    /// decides.
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
