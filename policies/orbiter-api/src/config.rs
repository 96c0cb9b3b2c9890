//! The configuration of `orbiter`, which a binding sets.

use polity_sdk::kube::drain::Options;
use polity_sdk::prelude::*;

/// The configuration of `orbiter`. The defaults are the specification's constants and recommended readings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The wait for other parties, and the time between passes of a cluster that is as it should be.
    pub pause: Period,
    /// The time between passes while a node is drained.
    pub drain_retry: Period,
    /// Whether nodes of the control plane are cordoned and drained before a change.
    pub drain_control_plane: bool,
    /// The grace period of evicted pods.
    pub eviction_grace: Period,
    /// How much longer than the grace period an evicted pod may take before it is deleted.
    pub grace_after_end: Period,
    /// The time after which an unfinished change of a node makes the cluster degraded. No other node is
    /// changed in either case. Never if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_timeout: Option<Period>,
    /// The packages that have the version of Kubernetes. One of them is `kubelet`.
    pub kubernetes_packages: Vec<String>,
    /// The releases through which a cluster is upgraded if it is more than one minor version behind: the newest
    /// release of each minor version in this list. A value replaces the whole list. The release that an Orb finally
    /// wants need not be in it.
    pub kubernetes_releases: Vec<String>,
    /// The lifetime of a bootstrap token.
    pub token_ttl: Period,
    /// The longest time from the end of its task until a node appears.
    pub join_timeout: Period,
    /// Whether workers join one after another.
    pub serial_joins: bool,
    /// Whether machines are replaced when the cloud asks for it.
    pub replace_machines: bool,
    /// Whether Nodes without a machine are deleted when they are not ready.
    pub delete_orphans: bool,
    /// Whether nodes that were not cordoned by orbiter are uncordoned after their change.
    pub uncordon_foreign: bool,
    /// The release of the node agent. Machines with another release get this release first. If it is not set, every
    /// release is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_release: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Config {
            pause: Period::from_secs(30),
            drain_retry: Period::from_secs(5),
            drain_control_plane: true,
            eviction_grace: Period::from_secs(60),
            grace_after_end: Period::from_secs(30),
            update_timeout: None,
            kubernetes_packages: owned(&["kubeadm", "kubelet"]),
            // The last releases of these minor versions, as of November 2026 (kubernetes.io/releases).
            kubernetes_releases: owned(&[
                "1.24.17", "1.25.16", "1.26.15", "1.27.16", "1.28.15", "1.29.15", "1.30.14", "1.31.14",
                "1.32.13", "1.33.13", "1.34.13", "1.35.10", "1.36.6", "1.37.2",
            ]),
            token_ttl: Period::from_secs(600),
            join_timeout: Period::from_secs(300),
            serial_joins: false,
            replace_machines: true,
            delete_orphans: true,
            uncordon_foreign: false,
            agent_release: None,
        }
    }
}

impl Config {
    /// The options for draining a node.
    pub fn drain(&self) -> Options {
        Options {
            eviction_grace: Some(self.eviction_grace.into()),
            delete_late: true,
            grace_with_volumes: self.grace_after_end.into(),
            grace_without_volumes: self.grace_after_end.into(),
            retry_period: self.drain_retry.into(),
            ..Options::default()
        }
    }

    /// The packages of Kubernetes, in this version.
    pub fn of_kubernetes(&self, version: &str) -> impl Iterator<Item = (String, String)> {
        let names = self.kubernetes_packages.iter();
        names.map(move |name| (name.clone(), version.to_owned()))
    }
}
