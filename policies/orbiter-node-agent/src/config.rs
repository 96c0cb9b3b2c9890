//! What the binding can set.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The node whose agent this is. Where it is not set, a Node tells its own name; while there is none, nothing is
    /// done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How long to wait before looking again.
    pub pause: Period,
    /// Whether the agent waits until its node is cordoned before it changes anything.
    pub require_cordon: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            node: None,
            pause: Period::from_secs(10),
            require_cordon: false,
        }
    }
}
