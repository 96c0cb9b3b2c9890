//! The CustomResourceDefinitions are what the API server wants: structural, without references.

use mcm_api::{Machine, MachineClass, MachineSafety, MachineSet};
use polity_sdk::Crd;
use serde_json::{Value, json};

/// Every field says its type, or that it keeps what it does not know.
fn assert_structural(schema: &Value, path: &str) {
    assert!(schema.get("$ref").is_none(), "{path} is a reference");
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    assert!(schema["type"].is_string() || open, "{path} has no type: {schema}");
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        assert_structural(field, &format!("{path}.{name}"));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(field) = schema.get(inner).filter(|field| field.is_object()) {
            assert_structural(field, &format!("{path}[]"));
        }
    }
}

fn schema(crd: &Crd) -> Value {
    crd.json()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn all_kinds_are_structural() {
    for crd in [
        Machine::crd(),
        MachineClass::crd(),
        MachineSet::crd(),
        Crd::of::<MachineSafety>("machinesafeties"),
    ] {
        assert_structural(&schema(&crd), "");
    }
}

#[test]
fn what_a_class_says_to_its_driver_is_kept_as_it_is() {
    let schema = schema(&MachineClass::crd());
    let spec = &schema["properties"]["spec"]["properties"]["providerSpec"];
    assert_eq!(spec["x-kubernetes-preserve-unknown-fields"], true);
}

#[test]
fn the_scale_of_a_set_names_numbers_that_the_set_has() {
    let version = MachineSet::crd().json()["spec"]["versions"][0].clone();
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    assert_eq!(version["subresources"], json!({"status": {}, "scale": scale}));
    for part in ["spec", "status"] {
        let number = &version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]["replicas"];
        assert_eq!(number["type"], "integer", "{part}");
    }
}
