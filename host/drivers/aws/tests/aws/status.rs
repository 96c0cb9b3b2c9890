//! Tests of reading a machine.

use polity_driver_sdk::Code;
use serde_json::{Value, json};

use crate::ec2::{object, server, small};

fn code(answer: Result<Value, polity_driver_sdk::Failure>) -> Code {
    answer.expect_err("a failure").code
}

#[test]
fn a_machine_is_read_by_its_id_and_by_its_name() {
    let server = server();
    let mut owner = object(&server);
    let made = owner.create("web-1");
    for arguments in [
        json!({"name": "web-1"}),
        json!({"name": "web-1", "providerID": made["providerID"]}),
    ] {
        let seen = owner.perform("machine.status", arguments).unwrap();
        assert_eq!(
            seen,
            json!({"providerID": made["providerID"], "nodeName": made["nodeName"]})
        );
    }
}

#[test]
fn a_machine_whose_node_has_no_name_yet_is_read_without_it() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    server.borrow_mut().instances[0].dns = String::new();
    let seen = owner.perform("machine.status", json!({"name": "web-1"})).unwrap();
    assert_eq!(seen.get("nodeName"), None);
}

#[test]
fn a_machine_is_initialized_when_its_check_is_as_the_class_says() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    let mut spec = small();
    let says = |spec: Option<&Value>| json!({"name": "web-1", "providerSpec": spec});
    let mut initialized = |check: &'static str, spec: Option<&Value>| {
        server.borrow_mut().instances[0].source_dest_check = check;
        owner
            .perform("machine.status", says(spec))
            .unwrap()
            .get("initialized")
            .cloned()
    };
    assert_eq!(initialized("true", None), None, "the class is not known");
    assert_eq!(initialized("", Some(&spec)), None, "EC2 does not say");
    assert_eq!(initialized("false", None), Some(json!(true)));
    assert_eq!(
        initialized("true", Some(&spec)),
        Some(json!(true)),
        "on by default"
    );
    assert_eq!(initialized("false", Some(&spec)), Some(json!(true)));
    spec["srcAndDstChecksEnabled"] = json!(true);
    assert_eq!(initialized("true", Some(&spec)), Some(json!(true)));
    spec["srcAndDstChecksEnabled"] = json!(false);
    assert_eq!(initialized("true", Some(&spec)), Some(json!(false)));
}

#[test]
fn a_machine_that_is_gone_is_not_found() {
    let server = server();
    let mut owner = object(&server);
    let made = owner.create("web-1");
    let (by_name, by_id) = (
        json!({"name": "web-1"}),
        json!({"name": "web-1", "providerID": made["providerID"]}),
    );
    for state in ["shutting-down", "terminated"] {
        server.borrow_mut().instances[0].state = state;
        for arguments in [&by_name, &by_id] {
            assert_eq!(
                code(owner.perform("machine.status", arguments.clone())),
                Code::NotFound,
                "{state}"
            );
        }
    }
    // A terminated instance loses its tags and its zone before it is forgotten.
    server.borrow_mut().instances[0].tags.clear();
    server.borrow_mut().instances[0].zone = "";
    assert_eq!(
        code(owner.perform("machine.status", by_id.clone())),
        Code::NotFound
    );
    server.borrow_mut().instances.clear();
    for arguments in [by_name, by_id] {
        assert_eq!(code(owner.perform("machine.status", arguments)), Code::NotFound);
    }
}

#[test]
fn a_stopped_machine_is_there() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    for state in ["pending", "running", "stopping", "stopped"] {
        server.borrow_mut().instances[0].state = state;
        assert!(
            owner.perform("machine.status", json!({"name": "web-1"})).is_ok(),
            "{state}"
        );
    }
}

#[test]
fn two_machines_of_one_name_are_out_of_range() {
    let server = server();
    let mut owner = object(&server);
    let ids = [0, 1].map(|_| server.borrow_mut().machine("owner-1", "web-1").id.clone());
    let failure = owner
        .perform("machine.status", json!({"name": "web-1"}))
        .unwrap_err();
    assert_eq!(failure.code, Code::OutOfRange);
    assert!(
        ids.iter().all(|id| failure.message.contains(id)),
        "{}",
        failure.message
    );
}

#[test]
fn the_machine_of_another_object_or_tenant_is_refused_by_id_and_not_found_by_name() {
    let server = server();
    let made = object(&server).create("web-1");
    let (by_name, by_id) = (
        json!({"name": "web-1"}),
        json!({"name": "web-1", "providerID": made["providerID"]}),
    );
    for (owner, tenant) in [("thief", "tenant-1"), ("owner-1", "tenant-2"), ("", "tenant-1")] {
        let mut other = object(&server);
        (other.play.owner, other.play.tenant) = (owner.to_owned(), tenant.to_owned());
        for operation in ["machine.status", "machine.delete", "machine.initialize"] {
            assert_eq!(
                code(other.perform(operation, by_id.clone())),
                Code::PermissionDenied
            );
            assert_eq!(code(other.perform(operation, by_name.clone())), Code::NotFound);
        }
        assert_eq!(other.changes(), 0);
    }
    assert_eq!(server.borrow().instances[0].state, "pending", "it is still there");
}

#[test]
fn an_id_has_one_spelling() {
    let server = server();
    let mut owner = object(&server);
    let made = owner.create("web-1");
    let id = made["providerID"].as_str().unwrap();
    let instance = id.rsplit('/').next().unwrap();
    for other in [
        instance.to_owned(),
        id.to_uppercase(),
        format!("{id}/"),
        format!("aws:///eu-central-1b/{instance}"),
        format!("aws:///eu-central-1/{instance}"),
        "sim:///vm-1".to_owned(),
        "aws:///eu-central-1a/i-*".to_owned(),
    ] {
        for operation in ["machine.status", "machine.delete", "machine.initialize"] {
            let arguments = json!({"name": "web-1", "providerID": other});
            assert_eq!(
                code(owner.perform(operation, arguments)),
                Code::NotFound,
                "{other}"
            );
        }
    }
    assert_eq!(owner.changes(), 1, "the create alone");
}

#[test]
fn names_with_characters_that_mean_something_to_filters_or_forms_mean_themselves() {
    let server = server();
    let names = [
        "web-*",
        "web-1",
        "web-?",
        r"web\1",
        "a&b=c%20+",
        "äöü \"<x>\"",
        "Filter.1.Value.2",
    ];
    let mut owner = object(&server);
    let mut made = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        owner.play.key = format!("key-{nth}");
        made.push(owner.create(name));
    }
    for (name, made) in names.iter().zip(&made) {
        let seen = owner.perform("machine.status", json!({"name": name})).unwrap();
        assert_eq!(seen["providerID"], made["providerID"], "{name}");
    }
    assert_eq!(
        code(owner.perform("machine.status", json!({"name": "*"}))),
        Code::NotFound
    );
}
