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
    /// The condition `Reachable`.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}
