//! What a node's own cloud needs to know.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::memory::Versions;

/// The configuration of the cloud `node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeConfig {
    /// Whose machine it is.
    pub node: String,
    /// The versions to begin with, by package, as they were given when the agent was installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Versions>,
    /// The root of the system whose packages these are. Any other than `/` is never rebooted, unless `rebootCommand`
    /// says how.
    #[serde(default = "root")]
    pub root: PathBuf,
    /// Says what would be done, and does nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// How the machine is rebooted; `systemctl reboot` if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_command: Option<Vec<String>>,
}

fn root() -> PathBuf {
    PathBuf::from("/")
}
