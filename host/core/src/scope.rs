//! What a watch covers, and what it says.

use serde::{Deserialize, Serialize};

use crate::contract::Kind;
use crate::key::ObjectKey;
use crate::object::{Object, ResourceVersion};
use crate::projection;

/// Metadata that the cache keeps for every scope, whatever fields the scope names. The identity of an object is kept
/// as well.
pub const KEPT_METADATA: [&str; 3] = [
    "metadata.generation",
    "metadata.deletionTimestamp",
    "metadata.labels",
];

/// The scope of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    /// The kind of the objects.
    #[serde(flatten)]
    pub kind: Kind,
    /// The namespace; `None` for all namespaces, or for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// If given, only the object of this name.
    pub name: Option<String>,
    /// If given, only Pods of this node: `spec.nodeName`.
    pub node: Option<String>,
    /// The dotted paths that are kept of each object; empty keeps everything.
    pub fields: Vec<String>,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind.kind)?;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}")?,
            (None, Some(name)) => write!(f, " {name}")?,
            (Some(namespace), None) => write!(f, " in {namespace}")?,
            (None, None) => {}
        }
        self.node.as_ref().map_or(Ok(()), |node| write!(f, " on {node}"))
    }
}

impl Scope {
    /// Trims an object to the fields of this scope, its identity and [`KEPT_METADATA`], as the watch of the scope
    /// shows it.
    pub fn trimmed(&self, object: &Object) -> Object {
        if self.fields.is_empty() {
            return object.clone();
        }
        let fields = self.fields.iter().map(String::as_str);
        Object::of(projection::project(object.json(), fields.chain(KEPT_METADATA)).into())
    }

    /// Whether the namespace and name of this place are in the scope.
    pub fn covers_place(&self, place: &ObjectKey) -> bool {
        (self.namespace.is_none() || self.namespace.as_deref() == place.namespace.as_deref())
            && self.name.as_deref().is_none_or(|name| *name == *place.name)
    }
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// All objects of the scope at one moment, after each list.
    Listed {
        /// The objects of the scope.
        objects: Vec<Object>,
        /// The version of the list. A known object that is older and not in the list is gone.
        version: ResourceVersion,
    },
    /// An object was created or changed.
    Applied(Object),
    /// An object was deleted. It carries the version of its deletion.
    Deleted(Object),
    /// The watch failed: answers from its cache may be outdated.
    Failed(String),
}
