//! Tests with data that an attacker chose.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;
use polity_driver_sdk::test::Reply;

use crate::bench::{Bench, by_id, clone_arguments, own};
use crate::vcenter::{OWN_VM, options, xml};

const NAMES: [&str; 7] = [
    "a/b",
    "a\\b",
    "50%",
    "%2f",
    "</name><powerOn>true</powerOn>",
    "\"'&<>",
    "\u{e4}\u{1f600}\u{1}",
];

#[test]
fn a_name_is_a_name_whatever_stands_in_it() {
    for name in NAMES {
        let mut bench = Bench::new();
        let mut arguments = clone_arguments();
        arguments["name"] = json!(name);
        bench.call("vm.clone", arguments).unwrap();
        assert_eq!(bench.vcenter().vms.last().unwrap().folder, "DC0/vm/team-a");
        let found = bench.call("vm.find", json!({"instanceUuid": "uuid-2"})).unwrap();
        // XML has no control characters.
        assert_eq!(found["name"], name.replace('\u{1}', "\u{fffd}"));
        assert!(bench.vcenter().vms.iter().all(|vm| !vm.name.contains('/')));
    }
}

#[test]
fn a_clone_of_a_strange_name_is_found_again() {
    for name in NAMES {
        let mut bench = Bench::new();
        let mut arguments = clone_arguments();
        arguments["name"] = json!(name);
        bench.vcenter().vms.retain(|vm| vm.id != OWN_VM);
        bench.call("vm.clone", arguments).unwrap();
        bench.vcenter().tasks.clear();
        let made = bench.vcenter().vms.last().unwrap().id.clone();
        let finding = bench.resolve(|entry| entry.intent = name.to_owned());
        let expected = json!({"task": format!("cloned:{made}")}).to_string();
        assert_eq!(finding, Finding::Found(expected), "{name:?}");
    }
}

#[test]
fn a_network_is_one_name_and_no_path() {
    let mut bench = Bench::new();
    let mut arguments = clone_arguments();
    arguments["networks"] = json!(["a/b"]);
    bench.call("vm.clone", arguments).unwrap();
    assert!(bench.changed().contains("<deviceName>a/b</deviceName>"));
    for name in ["/DC0/network/prod", "../network/prod", "x/../prod"] {
        let mut arguments = clone_arguments();
        arguments["networks"] = json!([name]);
        assert_eq!(bench.code("vm.clone", arguments), Code::InvalidArgument, "{name}");
    }
}

#[test]
fn arguments_with_xml_stay_texts() {
    let evil = "</inventoryPath><inventoryPath>DC0/vm/ubuntu";
    for field in ["template", "folder", "datastore", "resourcePool", "datacenter"] {
        let mut bench = Bench::new();
        let mut arguments = clone_arguments();
        arguments[field] = json!(evil);
        assert!(bench.call("vm.clone", arguments).is_err(), "{field}");
        assert_eq!(bench.changes(), 0);
    }
    let mut bench = Bench::new();
    assert_eq!(
        bench.code("vm.find", json!({"instanceUuid": "</uuid><uuid>owner-1"})),
        Code::NotFound
    );
}

#[test]
fn owner_tenant_and_key_are_written_as_they_are() {
    let mut bench = Bench::new();
    let evil = "</value><x>&\"";
    (bench.play.owner, bench.play.tenant) = (evil.to_owned(), evil.to_owned());
    bench.call("vm.clone", clone_arguments()).unwrap();
    assert_eq!(
        bench.vcenter().vms.last().unwrap().options,
        options(&[
            ("polity.owner", evil),
            ("polity.tenant", evil),
            ("polity.key", "key-1")
        ])
    );
    assert!(bench.call("vm.find", json!({"instanceUuid": "uuid-2"})).is_ok());
}

#[test]
fn a_server_that_answers_ids_that_are_none_is_not_followed() {
    let strange = xml::response(
        "FindAllByUuid",
        r#"<returnval type="VirtualMachine">vm-42&lt;/obj&gt;</returnval>"#,
    );
    let mut bench = Bench::new();
    bench
        .vcenter()
        .instead
        .insert("FindAllByUuid".to_owned(), Reply::new(200, strange));
    assert_eq!(
        bench.code("vm.find", json!({"instanceUuid": "u"})),
        Code::Internal
    );
    let host = xml::response(
        "FindAllByUuid",
        r#"<returnval type="HostSystem">host-1</returnval>"#,
    );
    bench
        .vcenter()
        .instead
        .insert("FindAllByUuid".to_owned(), Reply::new(200, host));
    assert_eq!(
        bench.code("vm.find", json!({"instanceUuid": "u"})),
        Code::Internal
    );
}

#[test]
fn an_answer_about_another_object_does_not_count() {
    let other = concat!(
        r#"<returnval><objects><obj type="VirtualMachine">vm-41</obj><propSet><name>config.extraConfig</name>"#,
        r#"<val xsi:type="ArrayOfOptionValue"><OptionValue><key>polity.owner</key><value>owner-1</value></OptionValue>"#,
        r#"<OptionValue><key>polity.tenant</key><value>tenant-1</value></OptionValue></val></propSet></objects></returnval>"#
    );
    let mut bench = Bench::new();
    let reply = Reply::new(200, xml::response("RetrievePropertiesEx", other));
    bench
        .vcenter()
        .instead
        .insert("RetrievePropertiesEx".to_owned(), reply);
    for operation in ["vm.destroy", "vm.get"] {
        assert_eq!(bench.code(operation, own()), Code::Internal);
        assert_eq!(bench.changes(), 0);
    }
}

#[test]
fn user_data_does_not_reach_the_driver() {
    let secrets = [
        ("guestinfo.userdata", "c2VjcmV0"),
        ("guestinfo.userdata.encoding", "base64"),
        ("guestinfo.vendordata", "c2VjcmV0"),
    ];
    for (operation, arguments) in by_id() {
        let mut bench = Bench::new();
        bench.vcenter().vm(OWN_VM).options.append(&mut options(&secrets));
        bench.call(operation, arguments).unwrap();
        let said = bench.vcenter().said.clone();
        assert!(said.contains("c2VjcmV0"));
        let read = bench
            .play
            .sent
            .iter()
            .rfind(|request| request.effect == Effect::Read)
            .unwrap();
        let kept = polity_body::read(said.as_bytes(), &read.keep).kept.to_string();
        assert!(
            kept.contains("polity.owner") && !kept.contains("c2VjcmV0"),
            "{operation}"
        );
    }
}
