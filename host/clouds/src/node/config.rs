//! The configuration of the cloud `node`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::memory::Versions;

/// The configuration of the cloud `node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeConfig {
    /// The name of this machine's Node.
    pub node: String,
    /// The versions that the agent was installed with, by package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Versions>,
    /// The root of the system whose packages are managed. A root other than `/` can only be rebooted if
    /// `rebootCommand` is set.
    #[serde(default = "root")]
    pub root: PathBuf,
    /// Log the changes and make none.
    #[serde(default)]
    pub dry_run: bool,
    /// The command that reboots the machine. The default is `systemctl reboot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_command: Option<Vec<String>>,
    /// The command that restarts the kubelet after an upgrade. The default is `systemctl daemon-reload`, then
    /// `systemctl restart kubelet`; below a root other than `/` the kubelet is not restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_restart_command: Option<Vec<String>>,
}

fn root() -> PathBuf {
    PathBuf::from("/")
}
