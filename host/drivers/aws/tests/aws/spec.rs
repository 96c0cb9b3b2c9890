//! Tests of what a class may contain.

use polity_driver_sdk::Code;
use serde_json::{Value, json};

use crate::ec2::{IMAGE, Object, object, server, small};

fn refused(owner: &mut Object, spec: &Value) -> String {
    let failure = owner.perform("machine.create", json!({"name": "web-1", "providerSpec": spec}));
    let failure = failure.unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument, "{}", failure.message);
    failure.message
}

#[test]
fn a_specification_that_is_wrong_is_refused_with_the_path_of_what_is_wrong() {
    let mut owner = object(&server());
    for (change, path) in [
        (json!({"ami": null}), "providerSpec.ami"),
        (json!({"ami": ""}), "providerSpec.ami"),
        (json!({"machineType": 7}), "providerSpec.machineType"),
        (json!({"image": "x"}), "providerSpec.image"),
        (
            json!({"blockDevices": [{"ebs": {"volumeSize": "big"}}]}),
            "providerSpec.blockDevices[0].ebs.volumeSize",
        ),
        (
            json!({"blockDevices": [{"ebs": {"volumeSize": -1}}]}),
            "providerSpec.blockDevices[0].ebs.volumeSize",
        ),
        (
            json!({"blockDevices": [{"ebs": {"volumeSize": 0}}]}),
            "providerSpec.blockDevices[0].ebs.volumeSize",
        ),
        (
            json!({"blockDevices": [{"ebs": {"size": 1}}]}),
            "providerSpec.blockDevices[0].ebs.size",
        ),
        (
            json!({"blockDevices": [{"deviceName": "/root"}, {}]}),
            "providerSpec.blockDevices[1].deviceName",
        ),
        (
            json!({"blockDevices": [{"deviceName": "/root"}, {"deviceName": "/root"}]}),
            "providerSpec.blockDevices[1].deviceName",
        ),
        (
            json!({"blockDevices": [{"deviceName": "/dev/sdf"}, {"deviceName": "/dev/sdg"}]}),
            "providerSpec.blockDevices:",
        ),
        (json!({"iam": {"name": "a", "arn": "b"}}), "providerSpec.iam:"),
        (
            json!({"networkInterfaces": [{}]}),
            "providerSpec.networkInterfaces[0].subnetID",
        ),
        (
            json!({"networkInterfaces": [{"subnetID": "s", "securityGroupIDs": ["a", ""]}]}),
            "providerSpec.networkInterfaces[0].securityGroupIDs[1]",
        ),
        (
            json!({"networkInterfaces": [{"subnetID": "s", "subnetId": "s"}]}),
            "providerSpec.networkInterfaces[0].subnetId",
        ),
        (json!({"tags": {"a": 1}}), "providerSpec.tags.a"),
        (
            json!({"blockDevices": [{"noDevice": "/dev/sdb"}]}),
            "providerSpec.blockDevices[0].noDevice",
        ),
        (
            json!({"blockDevices": [{"virtualName": "ephemeral0"}]}),
            "providerSpec.blockDevices[0].virtualName",
        ),
        (
            json!({"networkInterfaces": [{"subnetID": "s", "interfaceType": "efa"}]}),
            "providerSpec.networkInterfaces[0].interfaceType",
        ),
        (
            json!({"instanceMarketOptions": {}}),
            "providerSpec.instanceMarketOptions.marketType",
        ),
        (
            json!({"tags": {"polity.dev/owner": "thief"}}),
            "providerSpec.tags.polity.dev/owner",
        ),
        (json!({"tags": {"aws:x": "y"}}), "providerSpec.tags.aws:x"),
        (
            json!({"tags": {"kubernetes.io/role/node": "1"}, "instanceMetadataOptions": {"instanceMetadataTags": "enabled"}}),
            "providerSpec.instanceMetadataOptions.instanceMetadataTags: the metadata service cannot show tags with a \
             slash in their key: set it to \"disabled\" (kubernetes.io/role/node, polity.dev/owner)",
        ),
    ] {
        let mut spec = small();
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let message = refused(&mut owner, &spec);
        assert!(message.starts_with(path), "{path}: {message}");
    }
    assert_eq!(owner.play.sent, [], "nothing is sent");
}

#[test]
fn a_create_without_a_specification_is_refused() {
    let mut owner = object(&server());
    let failure = owner
        .perform("machine.create", json!({"name": "web-1"}))
        .unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert!(
        failure.message.starts_with("providerSpec: "),
        "{}",
        failure.message
    );
}

#[test]
fn the_regions_of_login_configuration_and_class_must_be_the_same() {
    let here =
        |region: Option<&str>| json!({"ami": IMAGE, "machineType": "t", "region": region.unwrap_or("")});
    for (login, config, class, fits) in [
        (json!({"region": "a"}), json!({}), here(Some("a")), true),
        (json!({"region": "a"}), json!({"region": "a"}), here(None), true),
        (json!({}), json!({}), here(Some("a")), true),
        (json!({"region": "a"}), json!({}), here(Some("b")), false),
        (json!({"region": "a"}), json!({"region": "b"}), here(None), false),
        (json!({}), json!({"region": "b"}), here(Some("a")), false),
    ] {
        let mut owner = object(&server());
        (owner.play.session, owner.play.config) = (login, config);
        let answer = owner.perform("machine.create", json!({"name": "web-1", "providerSpec": class}));
        match answer {
            Ok(_) => assert!(fits, "{class}"),
            Err(failure) => {
                assert!(
                    !fits && failure.code == Code::InvalidArgument,
                    "{class}: {}",
                    failure.message
                );
                assert_eq!(owner.play.sent, []);
            }
        }
    }
}

#[test]
fn no_operation_takes_a_machine_of_another_region_for_gone() {
    let server = server();
    let mut owner = object(&server);
    let mut arguments = owner.create("web-1");
    arguments = json!({"name": "web-1", "providerID": arguments["providerID"], "providerSpec": {"region": "us-east-1"}});
    for operation in ["machine.status", "machine.delete", "machine.initialize"] {
        let failure = owner.perform(operation, arguments.clone()).unwrap_err();
        assert_eq!(failure.code, Code::InvalidArgument, "{operation}");
    }
    assert_eq!(owner.changes(), 1, "the create alone");
}

#[test]
fn nothing_is_listed_or_resolved_in_another_region_than_the_configured_one() {
    let server = server();
    let mut owner = object(&server);
    owner.play.config = json!({"region": "us-east-1"});
    let failure = owner.perform("machine.list", json!({})).unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert!(matches!(
        owner.resolve("web-1"),
        polity_driver_sdk::Finding::CannotTell(_)
    ));
    assert_eq!(owner.play.sent, []);
}
