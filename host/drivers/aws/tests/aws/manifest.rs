//! Tests of the manifest.

use polity_driver_aws::{Aws, Config};
use polity_driver_sdk::{Driver as _, Login};

use crate::ec2::{object, server};

#[test]
fn the_manifest_names_one_endpoint_one_service_and_the_times() {
    let manifest = Aws::manifest();
    assert_eq!((&*manifest.name, manifest.login), ("aws", Login::AwsSigv4));
    assert_eq!(manifest.endpoints.keys().collect::<Vec<_>>(), ["ec2"]);
    assert_eq!((manifest.stamp, &manifest.stamps[..]), (1, &[1][..]));
    let [machines] = &manifest.implements[..] else {
        panic!("{:?}", manifest.implements)
    };
    assert_eq!(machines.service, "machine@1");
    assert_eq!(machines.lingers["machine.create"], 300_000);
    let operations = [
        "machine.create",
        "machine.status",
        "machine.delete",
        "orphan.delete",
        "machine.initialize",
        "machine.list",
        "machine.volumes",
    ];
    assert_eq!(machines.operations, operations);
}

#[test]
fn every_operation_of_the_manifest_is_performed() {
    for operation in &Aws::manifest().implements[0].operations {
        let answer =
            object(&server()).perform(operation, serde_json::json!({"name": "web-1", "volumes": []}));
        let code = answer.err().map(|failure| failure.code);
        assert_ne!(code, Some(polity_driver_sdk::Code::Unimplemented), "{operation}");
    }
}

#[test]
fn a_configuration_has_no_fields_that_nobody_reads() {
    let schema = Aws::manifest().config_schema;
    assert_eq!(schema["additionalProperties"], false, "{schema}");
    assert_eq!(
        schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["region"]
    );
    let config = |text: &str| serde_json::from_str::<Config>(text).ok();
    assert_eq!(config("{}"), Some(Config::default()));
    assert_eq!(config(r#"{"endpoint": "x"}"#), None);
}
