//! The configuration, which a binding sets.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The name of this agent's node. If it is not set, the agent takes the name from the Node object, and does
    /// nothing while there is no Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The wait before the next look.
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
