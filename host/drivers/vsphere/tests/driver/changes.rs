//! Changes of a VM.

use polity_driver_sdk::prelude::*;

use crate::bench::{Bench, own};
use crate::vcenter::{OWN_VM, options};

#[test]
fn a_change_answers_its_task_which_says_what_it_does() {
    let metadata = json!({"id": OWN_VM, "metadata": "m"});
    for (operation, arguments, kind) in [
        ("vm.power-on", own(), "power-on"),
        ("vm.reconfigure", metadata, "reconfigure"),
        ("vm.power-off", own(), "power-off"),
        ("vm.destroy", own(), "destroy"),
    ] {
        let mut bench = Bench::new();
        let task = bench.call(operation, arguments).unwrap();
        assert_eq!(bench.changes(), 1);
        let task = bench.call("task.get", json!({"id": task["task"]})).unwrap();
        assert_eq!(
            (&task["kind"], &task["state"], &task["vm"]),
            (&json!(kind), &json!("success"), &json!(OWN_VM))
        );
    }
}

#[test]
fn metadata_comes_back_as_it_was_set() {
    let mut bench = Bench::new();
    let text = "{\"instance-id\": \"</value>&\u{e4}\u{1f600}\",\n\t\"x\": \"]]>\"}";
    let metadata = json!({"id": OWN_VM, "metadata": text});
    bench.call("vm.reconfigure", metadata).unwrap();
    assert_eq!(
        bench.call("vm.metadata", own()).unwrap(),
        json!({"metadata": text})
    );
}

#[test]
fn power_and_removal_act_on_the_vm_that_was_named() {
    let mut bench = Bench::new();
    bench.call("vm.power-on", own()).unwrap();
    assert_eq!(bench.call("vm.power", own()).unwrap(), json!({"state": "on"}));
    bench.call("vm.power-off", own()).unwrap();
    assert_eq!(bench.call("vm.power", own()).unwrap(), json!({"state": "off"}));
    bench.call("vm.destroy", own()).unwrap();
    assert_eq!(bench.code("vm.get", own()), Code::NotFound);
    assert_eq!(bench.vcenter().vms.len(), 1, "the template stays");
}

#[test]
fn what_is_not_the_owners_is_refused_and_never_changed() {
    let of_others = [
        options(&[("polity.owner", "owner-2"), ("polity.tenant", "tenant-1")]),
        options(&[("polity.owner", "owner-1"), ("polity.tenant", "tenant-2")]),
        options(&[("polity.tenant", "tenant-1")]),
        options(&[
            ("polity.owner", "owner-1"),
            ("polity.owner", "owner-2"),
            ("polity.tenant", "tenant-1"),
        ]),
        options(&[("guestinfo.polity.owner", "owner-1")]),
        options(&[]),
    ];
    for marks in of_others {
        for (operation, arguments) in crate::bench::by_id() {
            let mut bench = Bench::new();
            bench.vcenter().vm(OWN_VM).options = marks.clone();
            assert_eq!(
                bench.code(operation, arguments),
                Code::PermissionDenied,
                "{operation} {marks:?}"
            );
            assert_eq!(bench.changes(), 0);
        }
        let mut bench = Bench::new();
        bench.vcenter().vm(OWN_VM).options = marks.clone();
        assert_eq!(
            bench.code("vm.find", json!({"instanceUuid": "owner-1"})),
            Code::NotFound
        );
    }
    for (operation, mut arguments) in crate::bench::by_id() {
        let mut bench = Bench::new();
        arguments["id"] = json!("vm-20");
        assert_eq!(
            bench.code(operation, arguments),
            Code::PermissionDenied,
            "a template: {operation}"
        );
        assert_eq!(bench.changes(), 0);
    }
}

#[test]
fn an_object_without_a_uid_owns_nothing() {
    let mut bench = Bench::new();
    bench.play.owner.clear();
    bench.vcenter().vm(OWN_VM).options = options(&[("polity.owner", ""), ("polity.tenant", "tenant-1")]);
    assert_eq!(bench.code("vm.destroy", own()), Code::PermissionDenied);
}

#[test]
fn ids_are_known_in_one_spelling_only_and_others_are_not_sent() {
    for id in [
        "vm-99",
        "42",
        "vm-42 ",
        " vm-42",
        "vm-42\n",
        "vm-42<",
        "vm/42",
        "v\u{e4}",
        "cloned:vm-42",
    ] {
        for (operation, mut arguments) in crate::bench::by_id() {
            let mut bench = Bench::new();
            arguments["id"] = json!(id);
            assert_eq!(
                bench.code(operation, arguments),
                Code::NotFound,
                "{operation} {id:?}"
            );
            let sent: String = bench
                .play
                .sent
                .iter()
                .map(|request| bench.play.body(request))
                .collect();
            let is_known = ["vm-99", "42"].contains(&id);
            assert_eq!(sent.contains("RetrievePropertiesEx"), is_known, "{id:?}");
        }
    }
}
