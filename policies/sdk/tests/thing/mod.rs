//! A small kind for the tests of the SDK.

use polity_sdk::prelude::*;
use polity_sdk::test::World;
use serde_json::json;

/// A thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thing {
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: ThingSpec,
    #[serde(default)]
    pub status: ThingStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThingSpec {
    #[serde(default)]
    pub size: u32,
    #[serde(default)]
    pub mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Slow.
    #[default]
    Slow,
    /// Fast.
    Fast,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ThingStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

impl Kind for Thing {
    const API_VERSION: &'static str = "example.com/v1";
    const KIND: &'static str = "Thing";
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A world with one thing.
pub fn world() -> World {
    World::new(json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "t", "namespace": "home", "uid": "u-1"},
        "spec": {"size": 1},
    }))
}
