//! Kinds of the cluster's API, as a policy's own Rust types.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Conditions, Time};

/// A kind of the cluster's API: the primary object of a policy, or one it asks for.
///
/// The type holds what the policy reads and writes. Fields it does not name stay as they are in the stored object.
pub trait Kind: Clone + PartialEq + Serialize + DeserializeOwned + 'static {
    /// `v1`, or `group/version`.
    const API_VERSION: &'static str;
    /// The kind, as written in manifests: `Node`.
    const KIND: &'static str;
    /// Cluster-scoped kinds say `false`.
    const NAMESPACED: bool = true;
    /// Dotted paths that an ask for this kind keeps; empty keeps all. See `object-query` in `types.wit` of `polity-contract`.
    const PROJECTION: &'static [&'static str] = &[];
    /// Whether a lifecycle policy of this kind is run while the one object that its binding names is absent.
    /// Otherwise such a pass is settled without a call.
    const RUNS_WHILE_ABSENT: bool = false;

    /// The object's metadata.
    fn metadata(&self) -> &Metadata;

    /// `status.conditions`, in which the end of each pass is told of: a pass that fails sets the condition
    /// [`RECONCILED`](crate::RECONCILED) to False and leaves an Event, the next one that does not sets it to True. The
    /// manifest names the condition among what the policy writes. A kind that has none says how its passes fail itself.
    fn conditions_mut(&mut self) -> Option<&mut Conditions> {
        None
    }
}

/// `metadata` of an object: what policies read, and the lists they may edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Unique in namespace and kind.
    pub name: String,
    /// None for cluster-scoped kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Unique in time and space.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The version this pass sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Counts the changes of `spec`.
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
    /// What must be let go of before the object disappears. Merged by key when published.
    pub finalizers: Vec<String>,
    /// Who owns the object.
    pub owner_references: Vec<OwnerReference>,
}

impl Metadata {
    /// Whether deletion was requested.
    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Lets go of a finalizer.
    pub fn remove_finalizer(&mut self, finalizer: &str) {
        self.finalizers.retain(|held| held != finalizer);
    }
}

/// The Kubernetes API describes metadata itself: a CRD says only that it is an object.
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

/// One owner of an object; merged by uid when published.
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
