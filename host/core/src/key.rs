//! Keys: one object under one binding. Keys are queued, and waits are kept by key.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::contract::ObjectRef;
use crate::object::Object;

/// The namespace and name of an object. Copies share the texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key for this namespace and name.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        ObjectKey {
            namespace: namespace.map(Arc::from),
            name: Arc::from(name),
        }
    }
}

impl From<&Object> for ObjectKey {
    fn from(object: &Object) -> Self {
        ObjectKey::new(object.namespace(), object.name())
    }
}

impl From<&ObjectRef> for ObjectKey {
    fn from(object: &ObjectRef) -> Self {
        ObjectKey::new(object.namespace.as_deref(), &object.name)
    }
}

impl From<&Key> for ObjectKey {
    fn from(key: &Key) -> Self {
        ObjectKey {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        }
    }
}

/// One object under one binding. Every event, timer and restart is reduced to a key and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// `metadata.name` of the binding.
    pub binding: Arc<str>,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name` of the object.
    pub name: Arc<str>,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{}", namespace, self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The number of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PassId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_called_as_its_object_is() {
        let key = |namespace: Option<&str>| Key {
            binding: "b".into(),
            namespace: namespace.map(Arc::from),
            name: "m".into(),
        };
        assert_eq!(key(Some("team")).to_string(), "team/m");
        assert_eq!(key(None).to_string(), "m");
    }
}
