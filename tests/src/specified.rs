//! The waits of the workflows in their original projects, in milliseconds. Tests compare with these figures and not
//! with those of the policies, which could be wrong.

/// capv-machine, from Cluster API's vSphere provider.
pub mod capv {
    /// Between two looks at a task: `REQUEUE_PERIOD` of `pkg/cloud/vsphere/config/config.go` (2019).
    pub const REQUEUE: u64 = 20_000;
    /// After a task that failed: `checkAndRetryTask` of `pkg/services/govmomi/util.go`.
    pub const AFTER_A_FAILURE: u64 = 60_000;
}

/// mcm-machine and mcm-safety, from Gardener's machine-controller-manager.
pub mod mcm {
    /// `ShortRetry` of `pkg/util/provider/machineutils/utils.go`.
    pub const SHORT: u64 = 5_000;
    /// `MediumRetry` of the same.
    pub const MEDIUM: u64 = 180_000;
    /// `LongRetry` of the same.
    pub const LONG: u64 = 600_000;
    /// A machine has to join within this time: `--machine-creation-timeout`.
    pub const CREATION: u64 = 1_200_000;
    /// An unhealthy machine has to come back within this time: `--machine-health-timeout`.
    pub const HEALTH: u64 = 600_000;
    /// Pods have to go within this time: `--machine-drain-timeout`.
    pub const DRAIN: u64 = 7_200_000;
    /// Between two evictions of a pod: `PodEvictionRetryInterval` of `drain.go`.
    pub const EVICTION: u64 = 20_000;
    /// Between two sweeps of orphans: `MachineSafetyOrphanVMsPeriod` of `pkg/util/provider/app/options/options.go`.
    pub const SWEEP: u64 = 900_000;
    /// After this time without an API server machines are frozen: `machine_safety.go`.
    pub const FREEZE: u64 = 30_000;
}

/// rug-router, from Akanda's rug.
pub mod rug {
    /// `retry_delay` of `api/__init__.py`.
    pub const RETRY: u64 = 1_000;
    /// `error_state_cooldown` of `instance_manager.py`.
    pub const COOLDOWN: u64 = 30_000;
    /// `boot_timeout` of the same.
    pub const BOOT: u64 = 600_000;
    /// `hotplug_timeout` of the same. It begins when the calls of Nova have returned: `replug` of the same.
    pub const HOTPLUG: u64 = 10_000;
    /// `rpc_response_timeout` of `oslo_messaging/rpc/client.py`, for which Nova's API waits for an attach.
    pub const ATTACH: u64 = 60_000;
}

/// capa-identity, from Cluster API's AWS provider.
pub mod capa {
    /// `--sync-period`.
    pub const RESYNC: u64 = 600_000;
}
