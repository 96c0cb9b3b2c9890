//! What machines are made from.

use std::collections::BTreeMap;

use polity_sdk::prelude::*;
use serde_json::{Map, Value};

/// What machines are made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineClass {
    /// Its name.
    pub metadata: Metadata,
    /// What it says.
    pub spec: ClassSpec,
}

impl Kind for MachineClass {
    const API_VERSION: &'static str = crate::API_VERSION;
    const KIND: &'static str = "MachineClass";
    const PROJECTION: &'static [&'static str] = &["metadata.finalizers", "spec"];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// What a class says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassSpec {
    /// For the driver.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub provider_spec: Map<String, Value>,
    /// The Secret whose `userData` a VM boots with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// How large a node of this class is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_template: Option<NodeCapacity>,
}

/// Names a Secret in the class's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    pub name: String,
}

/// How large a node is, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCapacity {
    /// `cpu` and `memory` at least.
    pub capacity: BTreeMap<String, String>,
    /// The cloud's name for the size.
    pub instance_type: String,
    /// The region of the cloud.
    pub region: String,
    /// Where in the region.
    pub zone: String,
}

impl NodeCapacity {
    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        let named = [&self.instance_type, &self.region, &self.zone];
        named.iter().all(|name| !name.is_empty())
            && ["cpu", "memory"]
                .iter()
                .all(|resource| self.capacity.contains_key(*resource))
    }
}

impl MachineClass {
    /// The CustomResourceDefinition of the classes, which no policy governs.
    pub fn crd() -> Crd {
        Crd::of::<MachineClass>("machineclasses")
            .column("Secret", ".spec.secretRef.name")
            .age_column("Age", ".metadata.creationTimestamp")
    }
}
