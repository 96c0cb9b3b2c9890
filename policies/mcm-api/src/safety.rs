//! The freeze of machines.

use polity_sdk::prelude::*;

/// Whether machines are frozen because the cluster's API server cannot be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineSafety {
    /// The metadata. Machines look for the name in their binding.
    pub metadata: Metadata,
    /// When to freeze.
    #[serde(default)]
    pub spec: SafetySpec,
    /// Whether it is frozen.
    #[serde(default)]
    pub status: SafetyStatus,
}

impl Kind for MachineSafety {
    const API_VERSION: &'static str = crate::API_VERSION;
    const KIND: &'static str = "MachineSafety";
    const NAMESPACED: bool = false;
    /// The fields that a machine reads.
    const PROJECTION: &'static [&'static str] = &["status.frozen", "status.since"];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// When to freeze. Missing fields come from the binding's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SafetySpec {
    /// How long the API server must be unreachable before machines are frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_after: Option<Period>,
    /// The namespace whose VMs without a Machine are looked for. The binding names a cloud, and this field as its tenant:
    /// `tenant: {path: spec.namespace}`. Without it none are looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Whether machines are frozen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SafetyStatus {
    /// Whether machines are frozen now.
    pub frozen: bool,
    /// When they were frozen or thawed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The reason, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when the API server has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Time>,
    /// When VMs without a Machine were last looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swept_at: Option<Time>,
    /// The VMs without a Machine that are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<Orphan>,
    /// The conditions `Reachable` and, from the first failed look for orphans on, `Swept`.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// A VM that carries our marks and belongs to no Machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Orphan {
    /// The name of the VM: that of its Machine.
    pub name: String,
    /// The cloud's id of the VM.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Since when it is known to have no Machine.
    pub since: Time,
}
