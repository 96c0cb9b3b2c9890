//! The source/destination check.

use polity_driver_sdk::Code;
use polity_driver_sdk::test::Reply;
use serde_json::{Value, json};

use crate::ec2::{Interface, Server, error, object, server, small};

/// The arguments for the machine `web-1`, whose class switches the check off.
fn unchecked() -> Value {
    let mut spec = small();
    spec["srcAndDstChecksEnabled"] = json!(false);
    json!({"name": "web-1", "providerSpec": spec})
}

#[test]
fn the_check_is_switched_off_once() {
    let server = server();
    let mut owner = object(&server);
    let made = owner.create("web-1");
    let mut arguments = unchecked();
    arguments["providerID"] = made["providerID"].clone();
    for _ in 0..2 {
        assert_eq!(
            owner.perform("machine.initialize", arguments.clone()).unwrap(),
            json!({})
        );
    }
    assert_eq!(server.borrow().instances[0].source_dest_check, "false");
    assert_eq!(owner.changes(), 2, "the create, and one change");
    let sent = owner.sent();
    let change = sent
        .iter()
        .find(|form| form["Action"] == "ModifyInstanceAttribute")
        .unwrap();
    assert_eq!(change["InstanceId"], server.borrow().instances[0].id);
}

#[test]
fn the_check_stays_on_unless_the_class_switches_it_off() {
    for (says, check) in [
        (json!(true), "true"),
        (json!(false), "false"),
        (json!(null), "true"),
    ] {
        let server = server();
        let mut owner = object(&server);
        owner.create("web-1");
        let mut spec = small();
        spec["srcAndDstChecksEnabled"] = says;
        owner
            .perform(
                "machine.initialize",
                json!({"name": "web-1", "providerSpec": spec}),
            )
            .unwrap();
        assert_eq!(server.borrow().instances[0].source_dest_check, check);
        assert_eq!(owner.changes(), if check == "true" { 1 } else { 2 });
    }
}

#[test]
fn a_machine_that_is_not_there_cannot_be_initialized() {
    let mut owner = object(&server());
    let failure = owner.perform("machine.initialize", unchecked()).unwrap_err();
    assert_eq!(failure.code, Code::NotFound);
}

#[test]
fn an_initialization_that_is_not_confirmed_is_doubtful() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    let no = "<ModifyInstanceAttributeResponse><return>false</return></ModifyInstanceAttributeResponse>";
    let empty = "<ModifyInstanceAttributeResponse/>";
    server
        .borrow_mut()
        .instead
        .insert("ModifyInstanceAttribute".into(), Reply::new(200, empty));
    assert!(owner.perform("machine.initialize", unchecked()).is_ok());
    for (reply, code, doubtful) in [
        (Reply::new(200, "<html/>"), Code::Internal, true),
        (Reply::new(200, no), Code::Internal, true),
        (error(500, "InternalError", "oh"), Code::Unavailable, true),
        (
            error(400, "IncorrectState", "not now"),
            Code::FailedPrecondition,
            false,
        ),
    ] {
        server
            .borrow_mut()
            .instead
            .insert("ModifyInstanceAttribute".into(), reply);
        let failure = owner.perform("machine.initialize", unchecked()).unwrap_err();
        assert_eq!(
            (failure.code, !owner.play.changed_nothing(&failure)),
            (code, doubtful)
        );
    }
}

/// A machine with a primary interface and other interfaces. Some of them were attached later, not by the driver.
fn with_interfaces(server: &Server) {
    let ours = server.borrow_mut().machine("owner-1", "web-1").tags.clone();
    let theirs = server.borrow_mut().machine("owner-2", "web-2").tags.clone();
    let of = |id, index, tags: &crate::ec2::Tags| Interface {
        id,
        index,
        source_dest_check: true,
        prefixes: 0,
        tags: tags.clone(),
    };
    server.borrow_mut().instances[0].interfaces = vec![
        of("eni-primary", 0, &ours),
        of("eni-second", 1, &ours),
        of("eni-plugin", 2, &Default::default()),
        of("eni-theirs", 3, &theirs),
        of("eni-third", 10, &ours),
    ];
}

#[test]
fn of_several_interfaces_those_of_the_owner_are_changed_and_the_primary_one_last() {
    let server = server();
    with_interfaces(&server);
    let mut owner = object(&server);
    assert_eq!(
        owner.perform("machine.initialize", unchecked()).unwrap(),
        json!({})
    );
    let sent = owner.sent();
    let changed: Vec<_> = sent
        .iter()
        .filter_map(|form| form.get("NetworkInterfaceId"))
        .collect();
    assert_eq!(changed, ["eni-third", "eni-second", "eni-primary"]);
    // A check that is off already is not changed again.
    let mut again = object(&server);
    again.perform("machine.initialize", unchecked()).unwrap();
    assert_eq!(again.changes(), 0);
}

#[test]
fn interfaces_that_cannot_be_read_are_not_changed() {
    let server = server();
    with_interfaces(&server);
    let mut owner = object(&server);
    for body in [
        "<DescribeNetworkInterfacesResponse/>",
        "<DescribeNetworkInterfacesResponse><networkInterfaceSet><item/></networkInterfaceSet></DescribeNetworkInterfacesResponse>",
        "<html/>",
    ] {
        server
            .borrow_mut()
            .instead
            .insert("DescribeNetworkInterfaces".into(), Reply::new(200, body));
        let failure = owner.perform("machine.initialize", unchecked()).unwrap_err();
        assert_eq!((failure.code, owner.changes()), (Code::Internal, 0), "{body}");
    }
}

/// The arguments for the machine `web-1`, whose first interface has an address and so many prefixes.
fn dual_stack(prefixes: u32) -> Value {
    let mut spec = small();
    spec["networkInterfaces"] =
        json!([{"subnetID": "subnet-1", "ipv6AddressCount": 1, "ipv6PrefixCount": prefixes}]);
    json!({"name": "web-1", "providerSpec": spec})
}

/// Source: `InitializeMachine` and `GetMachineStatus` in `pkg/aws/core.go` of machine-controller-manager-provider-aws.
#[test]
fn prefixes_beside_addresses_are_assigned_once() {
    let server = server();
    with_interfaces(&server);
    let mut owner = object(&server);
    let initialized = |server: &Server| {
        let seen = object(server).perform("machine.status", dual_stack(2)).unwrap();
        seen["initialized"].clone()
    };
    assert_eq!(initialized(&server), false);
    for _ in 0..2 {
        assert_eq!(
            owner.perform("machine.initialize", dual_stack(2)).unwrap(),
            json!({})
        );
    }
    assert_eq!(owner.changes(), 1, "they are there the second time");
    let prefixes: Vec<usize> = server.borrow().instances[0]
        .interfaces
        .iter()
        .map(|interface| interface.prefixes)
        .collect();
    assert_eq!(prefixes, [2, 0, 0, 0, 0]);
    assert_eq!(initialized(&server), true);
    // More are assigned if the class wants more.
    owner.perform("machine.initialize", dual_stack(3)).unwrap();
    assert_eq!(owner.changes(), 2);
    assert_eq!(server.borrow().instances[0].interfaces[0].prefixes, 3);
}

#[test]
fn an_interface_of_somebody_else_gets_no_prefixes() {
    let server = server();
    with_interfaces(&server);
    server.borrow_mut().instances[0].interfaces[0].tags.clear();
    let mut owner = object(&server);
    owner.perform("machine.initialize", dual_stack(1)).unwrap();
    assert_eq!(owner.changes(), 0);
}
