//! The schema of object metadata (meta/v1 `ObjectMeta`), the same for every kind.

use std::sync::OnceLock;

use polity_kube_rules::schema::{Dialect, Schema, compile};
use serde_json::{Value, json};

/// An object of a kind: these fields, and apiVersion, kind, metadata.
pub(super) fn rooted(schema: Schema) -> Schema {
    schema
        .with("apiVersion", Schema::string())
        .with("kind", Schema::string())
        .with("metadata", object_meta())
}

fn object_meta() -> Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA
        .get_or_init(|| {
            compile(Dialect::Structural, "metadata", &source()).expect("the schema of metadata is our own")
        })
        .clone()
}

/// The JSON of that schema.
pub(crate) fn source() -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "nullable": true, "format": "date-time" });
    let texts = json!({ "type": "object", "nullable": true, "additionalProperties": text });
    let owner = json!({
        "type": "object",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": { "type": "string", "minLength": 1 },
            "kind": { "type": "string", "minLength": 1 },
            "name": { "type": "string", "minLength": 1 },
            "uid": { "type": "string", "minLength": 1 },
            "controller": { "type": "boolean" },
            "blockOwnerDeletion": { "type": "boolean" },
        },
    });
    json!({
        "type": "object",
        "properties": {
            "name": text,
            "generateName": text,
            "namespace": text,
            "selfLink": text,
            "uid": text,
            "resourceVersion": text,
            "generation": { "type": "integer" },
            "creationTimestamp": time,
            "deletionTimestamp": time,
            "deletionGracePeriodSeconds": { "type": "integer", "nullable": true },
            "labels": texts,
            "annotations": texts,
            "finalizers": { "type": "array", "nullable": true, "items": text },
            "ownerReferences": { "type": "array", "nullable": true, "items": owner },
            "managedFields": {
                "type": "array",
                "nullable": true,
                "items": { "x-kubernetes-preserve-unknown-fields": true },
            },
        },
    })
}
