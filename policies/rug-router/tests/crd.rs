//! The CustomResourceDefinition refuses what no cloud could make sense of.

use serde_json::{Value, json};

#[test]
fn ports_have_mac_addresses_that_can_be_compared_and_none_is_there_twice() {
    let manifest = rug_router::manifest();
    let crd = manifest.as_contract().crd.as_ref().expect("a CRD");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let ports = &schema["properties"]["spec"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-type"], "map");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["mac"]));
    assert_eq!(
        ports["items"]["properties"]["mac"]["pattern"],
        "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"
    );
    assert_eq!(ports["items"]["required"], json!(["network", "mac"]));
}

#[test]
fn every_field_has_a_type() {
    let manifest = rug_router::manifest();
    let crd: Value = manifest.as_contract().crd.clone().expect("a CRD");
    assert_structural(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "");
}

fn assert_structural(schema: &Value, path: &str) {
    assert!(schema.get("$ref").is_none(), "{path} is a reference");
    assert!(schema["type"].is_string(), "{path} has no type: {schema}");
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        assert_structural(field, &format!("{path}.{name}"));
    }
    if let Some(items) = schema.get("items") {
        assert_structural(items, &format!("{path}[]"));
    }
}
