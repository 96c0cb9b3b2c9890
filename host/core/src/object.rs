//! A Kubernetes object as the host keeps it: parsed once, shared, with its metadata at hand.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::contract::{Json, Kind, ObjectRef};

/// An object's version. Kubernetes promises since 1.35 that these compare as numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct ResourceVersion(pub u64);

/// A Kubernetes object, immutable and cheap to clone. Its `managedFields` were dropped.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    value: Value,
    json: OnceLock<Json>,
    uid: String,
    version: ResourceVersion,
    generation: Option<u64>,
    deleting: bool,
}

impl Object {
    /// Takes an object as an API server serves it. Missing metadata reads as empty.
    pub fn new(mut value: Value) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = &value["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        let version = metadata["resourceVersion"]
            .as_str()
            .and_then(|v| v.parse().ok())
            .unwrap_or_default();
        let generation = metadata["generation"].as_u64();
        let deleting = metadata.get("deletionTimestamp").is_some_and(|t| !t.is_null());
        Object(Arc::new(Inner {
            version: ResourceVersion(version),
            json: OnceLock::new(),
            uid,
            generation,
            deleting,
            value,
        }))
    }

    /// The whole object.
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// The whole object as text, made once.
    pub fn json(&self) -> Json {
        self.0
            .json
            .get_or_init(|| self.0.value.to_string().into())
            .clone()
    }

    /// `metadata.uid`
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// `metadata.resourceVersion`
    pub fn version(&self) -> ResourceVersion {
        self.0.version
    }

    /// `metadata.generation`; none for kinds without one.
    pub fn generation(&self) -> Option<u64> {
        self.0.generation
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(&self) -> bool {
        self.0.deleting
    }

    /// `metadata.namespace`
    pub fn namespace(&self) -> Option<&str> {
        self.0.value["metadata"]["namespace"].as_str()
    }

    /// `metadata.name`
    pub fn name(&self) -> &str {
        self.0.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// `apiVersion` and `kind`
    pub fn kind(&self) -> Kind {
        let text = |key: &str| self.0.value[key].as_str().unwrap_or_default().to_owned();
        Kind {
            api_version: text("apiVersion"),
            kind: text("kind"),
        }
    }

    /// The reference that names it.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef {
            cluster: None,
            kind: self.kind(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    /// Whether `metadata.finalizers` holds this one.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.0.value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|f| f == finalizer))
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}@{}", self.kind().kind, self.name(), self.version().0)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.value == other.0.value
    }
}
