//! Sets of machines.

use std::collections::BTreeMap;

use polity_sdk::prelude::*;
use polity_sdk::{LabelSelector, OwnerReference};

use crate::{Machine, MachineSpec};

/// The finalizer that keeps a MachineSet until its Machines are gone.
pub const SET_FINALIZER: &str = "mcm.polity.dev/machineset";

/// A number of machines of one template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineSet {
    /// The metadata. The Machines have the same name, with a number.
    pub metadata: Metadata,
    /// The wanted state.
    pub spec: SetSpec,
    /// The observed state.
    #[serde(default)]
    pub status: SetStatus,
}

impl Kind for MachineSet {
    const API_VERSION: &'static str = crate::API_VERSION;
    const KIND: &'static str = "MachineSet";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn conditions_mut(&mut self) -> Option<&mut Conditions> {
        Some(&mut self.status.conditions)
    }
}

/// The wanted state of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetSpec {
    /// How many machines there are to be.
    pub replicas: u32,
    /// Selects the machines of the set. The labels of the template must fit.
    pub selector: LabelSelector,
    /// The template of the machines.
    pub template: MachineTemplate,
}

/// The template of machines. A change of the class, and of labels and annotations of machines, concerns new machines only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTemplate {
    /// Labels and annotations of the machines.
    pub metadata: MachineTemplateMetadata,
    /// The specification of the machines.
    pub spec: MachineSpec,
}

/// Labels and annotations of machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MachineTemplateMetadata {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The observed state of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SetStatus {
    /// The machines of the set that are not being deleted.
    pub replicas: u32,
    /// Of these, the Running ones.
    pub ready_replicas: u32,
    /// `Reconciled`, from the first failed pass on.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

impl MachineSet {
    /// The CustomResourceDefinition. Its scale names no selector, as Gardener's definition does not
    /// (machine-controller-manager, `kubernetes/crds/machine.sapcloud.io_machinesets.yaml`).
    pub fn crd() -> Crd {
        Crd::of::<MachineSet>("machinesets")
            .short_name("mcs")
            .scale(".spec.replicas", ".status.replicas")
            .column("Desired", ".spec.replicas")
            .column("Current", ".status.replicas")
            .column("Ready", ".status.readyReplicas")
            .age_column("Age", ".metadata.creationTimestamp")
    }

    /// A new machine of the set, with this number in its name.
    pub fn machine(&self, number: u32) -> Machine {
        let MachineTemplate { metadata, spec } = self.spec.template.clone();
        Machine {
            metadata: Metadata {
                name: self.name_of(number),
                labels: metadata.labels,
                annotations: metadata.annotations,
                owner_references: vec![self.reference()],
                ..Metadata::default()
            },
            spec,
            ..Machine::default()
        }
    }

    /// The name of the machine with this number.
    pub fn name_of(&self, number: u32) -> String {
        format!("{}-{number}", self.metadata.name)
    }

    /// The set as the controller of its machines.
    pub fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: MachineSet::API_VERSION.to_owned(),
            kind: MachineSet::KIND.to_owned(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}
