//! The configuration, which a binding sets.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants and recommended readings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// How often a VM is booted before it is given up.
    pub reboot_error_threshold: u32,
    /// How long nothing but a deletion is done after a VM was given up.
    pub error_state_cooldown: Period,
    /// How long a VM may take until it answers.
    pub boot_timeout: Period,
    /// How long the cloud may go on with plugging whose answer was lost.
    pub attach_timeout: Period,
    /// How long plugged networks may take to appear in the VM, from the answer on.
    pub hotplug_timeout: Period,
    /// How long the VM may take to accept a configuration.
    pub config_timeout: Period,
    /// How often the VM may refuse a configuration before it is made anew.
    pub max_retries: u32,
    /// The time until work under way is checked again. After a failure, the retry policy decides the wait.
    pub retry_delay: Period,
    /// How often a router with nothing to do is looked at.
    pub health_check_period: Period,
    /// A queue that is longer than this is reported.
    pub queue_warning_threshold: u32,
    /// Whether a poll configures a VM that answers and is not configured. Without it, as in the drawing, such a VM stays so.
    pub poll_configures_up: bool,
    /// Whether the policy makes no requests for any router.
    pub debug: bool,
    /// The namespaces for whose routers the policy makes no requests.
    pub debug_tenants: Vec<String>,
    /// The reason, for people.
    pub debug_reason: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            reboot_error_threshold: 5,
            error_state_cooldown: Period::from_secs(30),
            boot_timeout: Period::from_secs(600),
            // Nova's attach is a `call` (`attach_interface` of nova/compute/rpcapi.py), and so takes oslo.messaging's
            // `rpc_response_timeout` at most.
            attach_timeout: Period::from_secs(60),
            hotplug_timeout: Period::from_secs(10),
            config_timeout: Period::from_secs(90),
            max_retries: 3,
            retry_delay: Period::from_secs(1),
            health_check_period: Period::from_secs(60),
            queue_warning_threshold: 100,
            poll_configures_up: true,
            debug: false,
            debug_tenants: Vec::new(),
            debug_reason: None,
        }
    }
}
