//! Tests of the manifest and of its promises.

use std::collections::BTreeSet;

use polity_driver_sdk::prelude::*;
use polity_driver_vsphere::VSphere;

use crate::bench::{Bench, by_id, catalogue};

#[test]
fn every_operation_of_both_services_is_there() {
    let manifest = VSphere::manifest();
    let implemented: BTreeSet<&str> = manifest
        .implements
        .iter()
        .flat_map(|service| service.operations.iter().map(String::as_str))
        .collect();
    let known: BTreeSet<&str> = catalogue().into_iter().map(|(name, _)| name).collect();
    assert_eq!(implemented, known);
    let vm = &manifest.implements[0];
    assert_eq!((vm.service.as_str(), vm.lingers["vm.clone"]), ("vm@1", 60_000));
    assert_eq!(vm.places["vm.clone"], ["datacenter", "folder"]);
    assert!(manifest.endpoints["sdk"].soap);
}

#[test]
fn an_operation_of_another_service_is_unimplemented() {
    let mut bench = Bench::new();
    let failure = bench
        .play
        .perform::<VSphere>("router.boot", json!({}))
        .unwrap_err();
    assert_eq!(failure.code, Code::Unimplemented);
    let entry = bench.play.entry("x");
    let finding = bench.play.resolve::<VSphere>("vm.get", entry);
    assert!(matches!(finding, Finding::CannotTell(failure) if failure.code == Code::Unimplemented));
}

#[test]
fn a_session_that_names_the_services_saves_a_request() {
    let mut bench = Bench::new();
    let by_session = json!({
        "propertyCollector": "pc-1", "searchIndex": "si-1", "taskManager": "tm-1", "apiVersion": "8.0",
    });
    bench.call("vm.get", crate::bench::own()).unwrap();
    let without = bench.play.sent.len();
    bench.play.session = by_session;
    bench.call("vm.get", crate::bench::own()).unwrap();
    assert_eq!((without, bench.play.sent.len()), (2, 1));
}

#[test]
fn a_configuration_with_unknown_fields_is_refused() {
    let mut bench = Bench::new();
    bench.play.config["resourcepool"] = json!("x");
    assert_eq!(
        bench.code("vm.clone", crate::bench::clone_arguments()),
        Code::InvalidArgument
    );
}

#[test]
fn a_vm_is_left_alone_by_everybody_but_its_owner() {
    let mut bench = Bench::new();
    let mut names = by_id();
    names.push(("vm.find", json!({"instanceUuid": "owner-1"})));
    // A template and networks have no owner, and a task is only read.
    bench
        .play
        .is_left_alone_by_others::<VSphere>(&names, &["vm.clone", "task.get"]);
}
