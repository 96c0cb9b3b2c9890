//! Machine classes: the templates of machines.

use std::collections::BTreeMap;

use polity_sdk::prelude::*;
use serde_json::{Map, Value};

use crate::Machine;

/// The finalizer that keeps a MachineClass while a Machine uses it.
pub const CLASS_FINALIZER: &str = "mcm.polity.dev/machineclass";

/// A template of machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineClass {
    /// The metadata.
    pub metadata: Metadata,
    /// The specification.
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

/// The specification of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassSpec {
    /// The specification for the driver.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub provider_spec: Map<String, Value>,
    /// The Secret with the `userData` with which a VM boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// The Secret with the credentials for the cloud; without it the connection's own credentials are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
    /// The capacity of a node of this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_template: Option<NodeCapacity>,
}

/// A reference to a Secret in the class's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// The name of the Secret.
    pub name: String,
}

impl SecretRef {
    /// What is missing for the use of the Secret: the Secret itself, or one of these keys.
    pub fn lacks(&self, facts: &cluster::SecretFacts, keys: &[String]) -> Option<String> {
        if !facts.exists {
            return Some(format!("Secret {} does not exist", self.name));
        }
        let key = keys.iter().find(|key| !facts.keys.contains(key))?;
        Some(format!("Secret {} lacks {key}", self.name))
    }
}

/// The capacity and the place of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCapacity {
    /// The resources; at least `cpu` and `memory`.
    pub capacity: BTreeMap<String, String>,
    /// The cloud's name for the size.
    pub instance_type: String,
    /// The region of the cloud.
    pub region: String,
    /// The zone in the region.
    pub zone: String,
}

impl NodeCapacity {
    /// Whether no field is missing.
    pub fn is_complete(&self) -> bool {
        let named = [&self.instance_type, &self.region, &self.zone];
        named.iter().all(|name| !name.is_empty())
            && ["cpu", "memory"]
                .iter()
                .all(|resource| self.capacity.contains_key(*resource))
    }
}

impl MachineClass {
    /// The CustomResourceDefinition.
    pub fn crd() -> Crd {
        Crd::of::<MachineClass>("machineclasses")
            .column("Secret", ".spec.secretRef.name")
            .age_column("Age", ".metadata.creationTimestamp")
    }

    /// Whether a machine of the class's namespace refers to it.
    pub fn is_used_by(&self, machine: &Machine) -> bool {
        let named = &machine.spec.class;
        named.kind == Self::KIND && named.name == self.metadata.name
    }

    /// Whether it has the finalizer.
    pub fn is_held(&self) -> bool {
        let finalizers = &self.metadata.finalizers;
        finalizers.iter().any(|held| held == CLASS_FINALIZER)
    }
}
