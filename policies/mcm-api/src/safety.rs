//! The freeze.

use polity_sdk::prelude::*;

/// Whether machines are left alone because the cluster's API server cannot be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineSafety {
    /// Its name: machines look for the one that their binding names.
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
    /// What a machine looks at.
    const PROJECTION: &'static [&'static str] = &["status.frozen", "status.since"];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// When to freeze; what is absent, the binding's configuration says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SafetySpec {
    /// How long the API server must be unreachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_after: Option<Period>,
}

/// Whether machines are left alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SafetyStatus {
    /// They are.
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
    /// `Reachable`
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}
