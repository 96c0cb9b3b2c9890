//! What is queued, run and waited for: one object under one binding.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One object under one binding. Every event, timer and restart is reduced to a key and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// `metadata.name` of the binding.
    pub binding: Arc<str>,
    /// None for cluster-scoped kinds.
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

/// Names one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PassId(pub u64);

/// The two clocks, read together by the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Now {
    /// Milliseconds since boot, suspends included: what waits, leases and deadlines are measured by.
    pub boot: u64,
    /// Unix milliseconds: what policies see and objects say.
    pub unix: u64,
}

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
