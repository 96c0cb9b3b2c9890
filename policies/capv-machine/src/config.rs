//! What the binding can set.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// How long "requeue" waits.
    pub requeue_period: Period,
    /// How long a machine that is as it should be is left alone.
    pub resync: Period,
    /// How long nothing is changed after a task has failed; 0 tries again at once.
    pub failure_backoff: Period,
    /// Whether a VM that has vanished is made anew. Otherwise the machine says so and waits for somebody.
    pub recreate_missing: bool,
    /// How long to wait for addresses before looking again; the requeue period if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_wait: Option<Period>,
    /// When a running task is reported as too slow; never if it is not set. It is waited for all the same: two tasks
    /// on one machine are worse. A machine's `spec.taskTimeout` comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_timeout: Option<Period>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            requeue_period: Period::from_secs(20),
            resync: Period::from_secs(600),
            failure_backoff: Period::from_secs(60),
            recreate_missing: true,
            ip_wait: None,
            task_timeout: None,
        }
    }
}
