//! Kinds of the cluster's API as a policy's own Rust types.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Conditions, Time};

/// A kind of the cluster's API: the kind of the policy's primary, or a kind that the policy asks for.
///
/// The type has the fields that the policy reads and writes. Fields that it does not name stay as they are in
/// the stored object.
pub trait Kind: Clone + PartialEq + Serialize + DeserializeOwned + 'static {
    /// `v1`, or `group/version`.
    const API_VERSION: &'static str;
    /// The kind, as in manifests: `Node`.
    const KIND: &'static str;
    /// Whether the kind is namespaced. Cluster-scoped kinds set `false`.
    const NAMESPACED: bool = true;
    /// The dotted paths of the fields that an ask for this kind keeps. An empty list keeps all. See
    /// `object-query` in `types.wit` of `polity-contract`.
    const PROJECTION: &'static [&'static str] = &[];
    /// Whether a lifecycle policy of this kind is called if its binding names one object and that object does
    /// not exist. Otherwise such a pass is settled without a call.
    const RUNS_WHILE_ABSENT: bool = false;

    /// The object's metadata.
    fn metadata(&self) -> &Metadata;

    /// `status.conditions`, in which the SDK reports how passes of a lifecycle policy end. A pass that fails sets
    /// the condition [`RECONCILED`](crate::RECONCILED) to False and adds an Event. The next pass that does not
    /// fail sets it to True. The manifest must declare the condition among the policy's writes. If a kind returns
    /// `None`, its policy reports failures itself; so does an identity policy.
    fn conditions_mut(&mut self) -> Option<&mut Conditions> {
        None
    }
}

/// `metadata` of an object: the fields that policies read, and the lists that they may edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name, unique in namespace and kind.
    pub name: String,
    /// The namespace; `None` for cluster-scoped kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The uid, unique among all objects at all times.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The version that this pass sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The number of changes of `spec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// When the object was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// Set once deletion was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The finalizers, which keep the object after its deletion has begun. Merged by key when published.
    pub finalizers: Vec<String>,
    /// The owners of the object.
    pub owner_references: Vec<OwnerReference>,
}

impl Metadata {
    /// Whether deletion was requested.
    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Removes a finalizer.
    pub fn remove_finalizer(&mut self, finalizer: &str) {
        self.finalizers.retain(|held| held != finalizer);
    }
}

/// A CRD only declares metadata to be an object: the Kubernetes API defines the fields.
impl JsonSchema for Metadata {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Metadata".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object"})
    }
}

/// An owner of an object. Owners are merged by uid when published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The owner's API version.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid.
    pub uid: String,
    /// Whether the owner is the managing controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}
