//! The CustomResourceDefinition is what the API server wants, and refuses what can be told from an Orb alone.

use orbiter_api::Orb;
use serde_json::{Value, json};

/// Every field says its type.
fn assert_structural(schema: &Value, path: &str) {
    assert!(schema.get("$ref").is_none(), "{path} is a reference");
    assert!(schema["type"].is_string(), "{path} has no type: {schema}");
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        assert_structural(field, &format!("{path}.{name}"));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(field) = schema.get(inner).filter(|field| field.is_object()) {
            assert_structural(field, &format!("{path}[]"));
        }
    }
}

fn schema() -> Value {
    Orb::crd().json()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn the_orb_is_structural_and_cluster_scoped() {
    assert_structural(&schema(), "");
    assert_eq!(Orb::crd().json()["spec"]["scope"], "Cluster");
}

#[test]
fn the_size_of_a_pool_is_never_negative_and_that_of_a_control_plane_is_odd() {
    let spec = &schema()["properties"]["spec"]["properties"];
    let nodes = |pool: &Value| pool["properties"]["nodes"].clone();
    assert_eq!(nodes(&spec["workers"]["items"])["minimum"], 0);
    assert_eq!(nodes(&spec["workers"]["items"])["maximum"], 1000);
    assert_eq!(nodes(&spec["controlPlane"])["enum"], json!([1, 3, 5]));
}

#[test]
fn a_version_of_kubernetes_is_wanted_and_versions_hold_nothing_for_a_shell() {
    let versions = &schema()["properties"]["spec"]["properties"]["versions"];
    assert_eq!(versions["required"], json!(["kubernetes"]));
    assert_eq!(
        versions["additionalProperties"]["pattern"],
        "^[0-9][0-9A-Za-z.+:~-]*$"
    );
}

#[test]
fn an_orb_with_a_pool_of_minus_one_does_not_decode() {
    let orb = json!({
        "metadata": {"name": "o"},
        "spec": {
            "controlPlane": {"pool": "cp", "nodes": 1}, "workers": [{"pool": "w", "nodes": -1}],
            "versions": {"kubernetes": "1.30.2"},
        },
    });
    assert!(
        serde_json::from_value::<Orb>(orb)
            .unwrap_err()
            .to_string()
            .contains("-1")
    );
}
