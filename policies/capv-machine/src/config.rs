//! The configuration, which a binding sets.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The wait of a requeue.
    pub requeue_period: Period,
    /// The time between passes of a machine that is as it should be.
    pub resync: Period,
    /// How long nothing is changed after a failed task. With 0 the policy tries again at once.
    pub failure_backoff: Period,
    /// Whether a VM that has vanished is created again. Otherwise the machine reports it and waits for a
    /// person.
    pub recreate_missing: bool,
    /// The time between looks for addresses; the requeue period if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_wait: Option<Period>,
    /// How long a task may run before passes fail; without an end if it is not set. The task goes on, and the policy
    /// still waits for it: a second task on the same machine would be worse. A machine's `spec.taskTimeout` comes
    /// first.
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
