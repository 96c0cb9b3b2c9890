//! The configuration of `mcm-machine`, which a binding sets.

use polity_sdk::kube::drain::Options;
use polity_sdk::prelude::*;

use crate::Machine;

/// The configuration of `mcm-machine`. The defaults are the specification's constants and recommended readings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The longest time for a machine to be created and to join. `spec.creationTimeout` comes first.
    pub creation_timeout: Period,
    /// The longest time for which the cloud may not show a VM that it has created. Before that, a VM that is not found
    /// counts as not shown yet.
    pub visible_within: Period,
    /// The start of the creation timeout for a machine that waits for its node.
    pub creation_timeout_since: Since,
    /// The longest time that a machine may be Unknown before it becomes Failed. `spec.healthTimeout` comes
    /// first.
    pub health_timeout: Period,
    /// The most machines of a deployment that may be replaced at the same time because they were Unknown for
    /// too long.
    pub max_replacements: u32,
    /// The longest time of a drain before it is forced. `spec.drainTimeout` comes first.
    pub drain_timeout: Period,
    /// How often a disruption budget may refuse a pod before the drain is forced; at most as often as fits
    /// into the drain timeout. `spec.maxEvictRetries` comes first.
    pub max_evict_retries: u32,
    /// The wait after a disruption budget has refused an eviction.
    pub pod_eviction_retry: Period,
    /// The longest time for volumes to leave a node.
    pub volume_detach_timeout: Period,
    /// The longest time to wait for volumes to be attached to another node.
    pub volume_reattach_timeout: Period,
    /// The longest time of a forced drain.
    pub forced_drain_timeout: Period,
    /// What happens instead of an ordinary drain on a node that has been unhealthy for five minutes.
    pub unhealthy_node: UnhealthyNode,
    /// The node conditions that must not be true on a healthy node. `spec.nodeConditions` comes first.
    pub node_conditions: Vec<String>,
    /// A node with this taint is not ready for work yet, so its machine stays Pending.
    pub critical_components_taint: String,
    /// The time between passes of a machine that is as it should be.
    pub resync: Period,
    /// The time between passes of a machine that may time out.
    pub timeout_check: Period,
    /// The `MachineSafety` that can freeze this policy; empty for none.
    pub safety: String,
    /// Whether a bootstrap token is minted for each creation.
    pub bootstrap_token: bool,
    /// The keys that a class's Secret with user data must have.
    pub secret_keys: Vec<String>,
    /// The keys that a class's Secret with credentials must have.
    pub credential_keys: Vec<String>,
    /// The finalizer that a class must have before machines are created from it; empty for none.
    pub class_finalizer: String,
    /// The wait after a creation that found no resources.
    pub resource_exhausted: Wait,
    /// Whether a machine can be deleted although its class is missing.
    pub delete_without_class: bool,
    /// Whether a VM that is not found is still drained and deleted, so that leftovers such as NICs are
    /// removed.
    pub not_found_still_deletes: bool,
    /// Whether an answer about the VM that cannot be decoded makes the operation Failed instead of
    /// Processing.
    pub decode_failure_is_failed: bool,
}

/// The start of the creation timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Since {
    /// The machine's creation.
    Creation,
    /// The time at which it became Pending.
    Pending,
}

/// What happens on a node that has been unhealthy for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnhealthyNode {
    /// A forced drain.
    Force,
    /// No drain.
    Skip,
}

/// A class of wait, with its period in `mcm-retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Wait {
    /// 5 s.
    Short,
    /// 3 min.
    Medium,
    /// 10 min.
    Long,
}

impl From<Wait> for RetryClass {
    fn from(wait: Wait) -> RetryClass {
        match wait {
            Wait::Short => RetryClass::Short,
            Wait::Medium => RetryClass::Medium,
            Wait::Long => RetryClass::Long,
        }
    }
}

/// The keys of a Secret with credentials for EC2, which is the cloud of the one driver of machines.
pub fn credential_keys() -> Vec<String> {
    ["accessKeyID", "secretAccessKey"].map(str::to_owned).to_vec()
}

impl Default for Config {
    fn default() -> Self {
        Config {
            creation_timeout: Period::from_secs(20 * 60),
            visible_within: Period::from_secs(10 * 60),
            creation_timeout_since: Since::Creation,
            health_timeout: Period::from_secs(10 * 60),
            max_replacements: 1,
            drain_timeout: Period::from_secs(2 * 3600),
            max_evict_retries: 360,
            pod_eviction_retry: Period::from_secs(20),
            volume_detach_timeout: Period::from_secs(120),
            volume_reattach_timeout: Period::from_secs(90),
            forced_drain_timeout: Period::from_secs(60),
            unhealthy_node: UnhealthyNode::Force,
            node_conditions: [
                "KernelDeadlock",
                "ReadonlyFilesystem",
                "DiskPressure",
                "NetworkUnavailable",
            ]
            .map(str::to_owned)
            .to_vec(),
            critical_components_taint: "node.gardener.cloud/critical-components-not-ready".to_owned(),
            resync: Period::from_secs(600),
            timeout_check: Period::from_secs(60),
            safety: "default".to_owned(),
            bootstrap_token: true,
            secret_keys: vec!["userData".to_owned()],
            credential_keys: credential_keys(),
            class_finalizer: String::new(),
            resource_exhausted: Wait::Long,
            delete_without_class: false,
            not_found_still_deletes: false,
            decode_failure_is_failed: false,
        }
    }
}

impl Config {
    /// The longest time for the machine to be created and to join.
    pub fn creation_timeout(&self, machine: &Machine) -> Duration {
        machine
            .spec
            .creation_timeout
            .unwrap_or(self.creation_timeout)
            .into()
    }

    /// The longest time that the machine may be Unknown.
    pub fn health_timeout(&self, machine: &Machine) -> Duration {
        machine.spec.health_timeout.unwrap_or(self.health_timeout).into()
    }

    /// The longest time of the machine's drain before it is forced.
    pub fn drain_timeout(&self, machine: &Machine) -> Duration {
        machine.spec.drain_timeout.unwrap_or(self.drain_timeout).into()
    }

    /// How often a disruption budget may refuse a pod; at most as often as fits into the drain timeout.
    pub fn evict_retries(&self, machine: &Machine) -> u32 {
        let period = Duration::from(self.pod_eviction_retry).as_millis().max(1);
        let fitting = self.drain_timeout(machine).as_millis() / period;
        let wanted = machine.spec.max_evict_retries.unwrap_or(self.max_evict_retries);
        wanted.min(u32::try_from(fitting).unwrap_or(u32::MAX)).max(1)
    }

    /// The options for draining the machine's node.
    pub fn drain(&self, machine: &Machine, force: bool) -> Options {
        Options {
            force,
            forced_timeout: self.forced_drain_timeout.into(),
            retry_period: self.pod_eviction_retry.into(),
            longest_grace: self.drain_timeout(machine),
            detach_timeout: self.volume_detach_timeout.into(),
            reattach_timeout: self.volume_reattach_timeout.into(),
            ..Options::default()
        }
    }
}
