//! Namespaces: they exist before their content and are removed after it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    http::refusal::{Refusal, Subject},
    store::{Key, Write},
};

/// Where namespaces are stored.
pub(crate) const RESOURCE: &str = "namespaces";

/// The namespaces that always exist and cannot be deleted.
const PERMANENT: [&str; 2] = ["default", "kube-system"];

/// Where a namespace is stored.
pub(crate) fn key(name: &str) -> Key {
    Key {
        resource: Arc::from(RESOURCE),
        namespace: "".into(),
        name: name.into(),
    }
}

/// Creates the permanent namespaces if they are missing.
pub(crate) fn begin(write: &mut Write<'_>) -> Result<(), Refusal> {
    for name in PERMANENT {
        if write.get(&key(name)).is_none() {
            let namespace = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "uid": write.new_uid(),
                    "creationTimestamp": write.now(),
                    "labels": { "kubernetes.io/metadata.name": name },
                },
                "spec": { "finalizers": ["kubernetes"] },
                "status": { "phase": "Active" },
            });
            write.put(&key(name), namespace);
        }
    }
    Ok(())
}

/// Sets the fields that every new namespace has.
pub(crate) fn prepare(namespace: &mut Value) {
    namespace["spec"] = json!({ "finalizers": ["kubernetes"] });
    namespace["status"] = json!({ "phase": "Active" });
}

/// Checks that the namespace of a new object exists and is not being deleted.
pub(crate) fn require(write: &Write<'_>, name: &str, subject: Subject<'_>) -> Result<(), Refusal> {
    let missing = Subject {
        group: "",
        kind: RESOURCE,
        name,
    };
    let namespace = write.get(&key(name)).ok_or_else(|| Refusal::not_found(missing))?;
    if namespace.is_deleting() {
        return Err(Refusal::namespace_terminating(subject, name));
    }
    Ok(())
}

/// Refuses to delete a permanent namespace.
pub(crate) fn check_deletable(name: &str) -> Result<(), Refusal> {
    if PERMANENT.contains(&name) {
        let subject = Subject {
            group: "",
            kind: RESOURCE,
            name,
        };
        return Err(Refusal::forbidden(subject, "this namespace may not be deleted"));
    }
    Ok(())
}
