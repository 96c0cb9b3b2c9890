//! Pods, and which of them must go.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Options;
use crate::{Kind, Metadata, Time};

/// A Pod, with the fields that a drain reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    /// The metadata, with the owner and the time of deletion.
    pub metadata: Metadata,
    /// The specification, with volumes, grace period and priority.
    #[serde(default)]
    pub spec: PodSpec,
}

impl Kind for Pod {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PROJECTION: &'static [&'static str] = &[
        "metadata.labels",
        "metadata.annotations",
        "metadata.ownerReferences",
        "metadata.deletionTimestamp",
        "spec.volumes",
        "spec.terminationGracePeriodSeconds",
        "spec.priority",
    ];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The specification of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Its volumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<PodVolume>,
    /// The grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<u64>,
    /// The priority. The API server writes it for each pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// A volume of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    /// Its name in the pod.
    pub name: String,
    /// The claim of the volume, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimSource>,
}

/// The name of a claim in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSource {
    /// The name of the claim.
    pub claim_name: String,
}

impl Pod {
    /// Whether a drain removes this pod. A pod of a DaemonSet or a static pod would only be created again.
    pub fn has_to_go(&self) -> bool {
        let of_a_daemon_set = self
            .metadata
            .owner_references
            .iter()
            .any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true));
        let of_the_kubelet = self
            .metadata
            .annotations
            .contains_key("kubernetes.io/config.mirror");
        !of_a_daemon_set && !of_the_kubelet
    }

    /// Whether it has volumes that outlive it.
    pub fn has_volumes(&self) -> bool {
        self.claims().next().is_some()
    }

    /// The claims of its volumes.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        let sources = self
            .spec
            .volumes
            .iter()
            .filter_map(|v| v.persistent_volume_claim.as_ref());
        sources.map(|source| source.claim_name.as_str())
    }

    /// The claims that no other of these pods has. A volume stays on the node as long as one of its pods does, so
    /// nobody waits for it there (MCM, `filterSharedPVs` of `drain.go`).
    pub(super) fn own_claims(&self, pods: &[Pod]) -> impl Iterator<Item = &str> {
        let shares = move |other: &Pod, name: &str| {
            let elsewhere = other.metadata.namespace != self.metadata.namespace;
            !elsewhere && other.metadata.uid != self.metadata.uid && other.claims().any(|claim| claim == name)
        };
        self.claims()
            .filter(move |name| !pods.iter().any(|other| shares(other, name)))
    }

    /// `namespace/name`
    pub fn full_name(&self) -> String {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        format!("{namespace}/{}", self.metadata.name)
    }

    /// When an ending pod should be gone. Kubernetes writes the end of the grace period as
    /// `deletionTimestamp`. If the grace period is longer than allowed, only the allowed part counts.
    pub(super) fn gone_by(&self, options: &Options) -> Time {
        let grace = Duration::from_secs(self.spec.termination_grace_period_seconds.unwrap_or(30));
        let excess = grace.saturating_sub(options.longest_grace);
        let end = self.metadata.deletion_timestamp.unwrap_or_default();
        let allowed = Time::from_unix_ms(end.unix_ms().saturating_sub(crate::time::millis(excess)));
        allowed
            + if self.has_volumes() {
                options.grace_with_volumes
            } else {
                options.grace_without_volumes
            }
    }
    /// Whether it should have ended so long ago that its volumes, too, should have left. Other pods do not wait for it
    /// any longer (MCM waits its grace period and the detach timeout, `evictPodsWithPVInternal` of `drain.go`).
    pub(super) fn is_stuck(&self, now: Time, options: &Options) -> bool {
        self.metadata.deleting() && now > self.gone_by(options) + options.detach_timeout
    }
}
