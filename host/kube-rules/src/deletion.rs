//! Deletion: whether it has begun, and whether anything still keeps the object.
//!
//! Grace periods, propagation and garbage collection are not here.

use serde_json::Value;

use crate::finalizers;

/// Whether the deletion of an object has begun.
pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether nothing in its metadata keeps a deleting object: no finalizer, no grace period. The write that
/// leaves an object like this removes it (apiserver `registry.ShouldDeleteDuringUpdate`).
pub fn is_released(object: &Value) -> bool {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
    is_deleting(object) && grace.unwrap_or(0) == 0 && finalizers::of(object).next().is_none()
}

/// Whether an object that a write left like this is gone. A Namespace also has finalizers in its spec: it
/// exists until its content is gone (kube-apiserver `ShouldDeleteNamespaceDuringUpdate`).
pub fn is_ended(object: &Value) -> bool {
    let is_namespace = object["apiVersion"] == "v1" && object["kind"] == "Namespace";
    let in_spec = object["spec"]["finalizers"].as_array();
    let is_held = is_namespace && in_spec.is_some_and(|finalizers| !finalizers.is_empty());
    is_released(object) && !is_held
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const BEGUN: &str = "2026-01-01T00:00:00Z";

    fn object(metadata: Value, kind: &str, spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
    }

    #[test]
    fn a_deleting_object_ends_when_its_last_finalizer_and_its_grace_are_gone() {
        for (metadata, ended) in [
            (json!({}), false),
            (json!({"deletionTimestamp": null}), false),
            (json!({"deletionTimestamp": BEGUN}), true),
            (json!({"deletionTimestamp": BEGUN, "finalizers": []}), true),
            (json!({"deletionTimestamp": BEGUN, "finalizers": ["a/x"]}), false),
            (
                json!({"deletionTimestamp": BEGUN, "deletionGracePeriodSeconds": 0}),
                true,
            ),
            (
                json!({"deletionTimestamp": BEGUN, "deletionGracePeriodSeconds": 30}),
                false,
            ),
        ] {
            let node = object(metadata, "Node", json!({}));
            assert_eq!(is_ended(&node), ended, "{node}");
        }
    }

    #[test]
    fn a_namespace_stands_until_the_finalizers_of_its_spec_are_gone() {
        let deleting = json!({"deletionTimestamp": BEGUN});
        for (kind, finalizers, ended) in [
            ("Namespace", json!(["kubernetes"]), false),
            ("Namespace", json!([]), true),
            ("Node", json!(["kubernetes"]), true),
        ] {
            let object = object(deleting.clone(), kind, json!({"finalizers": finalizers}));
            assert!(is_released(&object));
            assert_eq!(is_ended(&object), ended, "{object}");
        }
    }
}
