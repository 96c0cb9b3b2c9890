//! What a binding of `mcm-machine` can set.

use polity_sdk::kube::drain::Options;
use polity_sdk::prelude::*;

use crate::Machine;

/// The configuration of `mcm-machine`. The defaults are the specification's constants and recommended readings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// How long a machine may take to be created and to join. `spec.creationTimeout` comes first.
    pub creation_timeout: Period,
    /// What the creation timeout of a machine that waits for its node counts from.
    pub creation_timeout_since: Since,
    /// How long a machine may be Unknown before it is Failed. `spec.healthTimeout` comes first.
    pub health_timeout: Period,
    /// How many machines of a deployment may be replaced at a time because they were Unknown for too long.
    pub max_replacements: u32,
    /// How long a drain may take before it is forced. `spec.drainTimeout` comes first.
    pub drain_timeout: Period,
    /// How often a disruption budget may refuse a pod before the drain is forced; never more often than fits into
    /// the drain timeout. `spec.maxEvictRetries` comes first.
    pub max_evict_retries: u32,
    /// How long to wait after a disruption budget has refused an eviction.
    pub pod_eviction_retry: Period,
    /// How long volumes may take to leave a node.
    pub volume_detach_timeout: Period,
    /// How long volumes are waited for to arrive at another node.
    pub volume_reattach_timeout: Period,
    /// How long a forced drain may take.
    pub forced_drain_timeout: Period,
    /// What is done instead of an ordinary drain on a node that has been unhealthy for five minutes.
    pub unhealthy_node: UnhealthyNode,
    /// Node conditions that must not hold of a healthy node. `spec.nodeConditions` comes first.
    pub node_conditions: Vec<String>,
    /// A node with this taint is not ready for work yet: its machine stays Pending.
    pub critical_components_taint: String,
    /// How long a machine that is as it should be is left alone.
    pub resync: Period,
    /// When a machine that may time out is looked at again.
    pub timeout_check: Period,
    /// The `MachineSafety` that can freeze this policy; empty for none.
    pub safety: String,
    /// Whether a bootstrap token is made for each creation.
    pub bootstrap_token: bool,
    /// The keys that a class's Secret must have.
    pub secret_keys: Vec<String>,
    /// The finalizer that a class must carry before machines are made from it; empty for none.
    pub class_finalizer: String,
    /// Which wait follows a creation that found no resources.
    pub resource_exhausted: Wait,
    /// Whether a machine can be deleted although its class is missing.
    pub delete_without_class: bool,
    /// Whether a VM that is not found is still drained and deleted, so that leftovers such as NICs go.
    pub not_found_still_deletes: bool,
    /// Whether an answer about the VM that cannot be decoded makes the operation Failed instead of Processing.
    pub decode_failure_is_failed: bool,
}

/// What the creation timeout counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Since {
    /// The machine's creation.
    Creation,
    /// The moment it became Pending.
    Pending,
}

/// What is done on a node that has been unhealthy for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnhealthyNode {
    /// A forced drain.
    Force,
    /// No drain.
    Skip,
}

/// A period of the retry policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Wait {
    /// 5 s with `mcm-retry`.
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

impl Default for Config {
    fn default() -> Self {
        Config {
            creation_timeout: Period::from_secs(20 * 60),
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
            class_finalizer: String::new(),
            resource_exhausted: Wait::Long,
            delete_without_class: false,
            not_found_still_deletes: false,
            decode_failure_is_failed: false,
        }
    }
}

impl Config {
    /// How long the machine may take to be created and to join.
    pub fn creation_timeout(&self, machine: &Machine) -> Duration {
        machine
            .spec
            .creation_timeout
            .unwrap_or(self.creation_timeout)
            .into()
    }

    /// How long the machine may be Unknown.
    pub fn health_timeout(&self, machine: &Machine) -> Duration {
        machine.spec.health_timeout.unwrap_or(self.health_timeout).into()
    }

    /// How long the machine's drain may take before it is forced.
    pub fn drain_timeout(&self, machine: &Machine) -> Duration {
        machine.spec.drain_timeout.unwrap_or(self.drain_timeout).into()
    }

    /// How often a disruption budget may refuse a pod: never more often than fits into the drain's timeout.
    pub fn evict_retries(&self, machine: &Machine) -> u32 {
        let period = Duration::from(self.pod_eviction_retry).as_millis().max(1);
        let fitting = self.drain_timeout(machine).as_millis() / period;
        let wanted = machine.spec.max_evict_retries.unwrap_or(self.max_evict_retries);
        wanted.min(u32::try_from(fitting).unwrap_or(u32::MAX)).max(1)
    }

    /// How to drain the machine's node.
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
