//! Tests against a server that shows resources it should not show.

use polity_driver_aws::Aws;
use polity_driver_sdk::Code;
use polity_driver_sdk::test::Reply;
use serde_json::json;

use crate::ec2::{object, server};

fn describe(inside: &str) -> Reply {
    Reply::new(
        200,
        format!("<DescribeInstancesResponse>{inside}</DescribeInstancesResponse>"),
    )
}

fn rows(rows: &[&str]) -> Reply {
    let rows: String = rows
        .iter()
        .map(|row| format!("<item><instancesSet><item>{row}</item></instancesSet></item>"))
        .collect();
    describe(&format!("<reservationSet>{rows}</reservationSet>"))
}

const ID: &str = "<instanceId>i-01234567</instanceId>";
const STATE: &str = "<instanceState><name>running</name></instanceState>";
const PLACE: &str = "<placement><availabilityZone>eu-central-1a</availabilityZone></placement>";

fn tags(pairs: &[(&str, &str)]) -> String {
    let tag = |(key, value): &(&str, &str)| format!("<item><key>{key}</key>{value}</item>");
    format!("<tagSet>{}</tagSet>", pairs.iter().map(tag).collect::<String>())
}

#[test]
fn an_instance_of_another_owner_is_never_changed_whatever_the_filters_do() {
    let server = server();
    server.borrow_mut().filters = false;
    server.borrow_mut().machine("owner-2", "web-1");
    server.borrow_mut().make(&[("Name", "web-1")]);
    server.borrow_mut().make(&[
        ("Name", "web-1"),
        ("polity.dev/owner", "owner-1"),
        ("polity.dev/tenant", "tenant-2"),
    ]);
    server.borrow_mut().machine("owner-1", "web-10");
    let mut owner = object(&server);
    for operation in ["machine.status", "machine.delete", "machine.initialize"] {
        let failure = owner.perform(operation, json!({"name": "web-1"})).unwrap_err();
        assert_eq!(failure.code, Code::NotFound, "{operation}");
    }
    assert_eq!(owner.changes(), 0);
}

#[test]
fn a_machine_is_left_alone_by_everybody_but_its_owner() {
    let server = server();
    let mut own = object(&server);
    let id = own.create("web-1")["providerID"].clone();
    let by_name = json!({"name": "web-1"});
    let by_id = json!({"name": "web-1", "providerID": id});
    let mut names = Vec::new();
    for operation in ["machine.status", "machine.delete", "machine.initialize"] {
        names.extend([(operation, by_name.clone()), (operation, by_id.clone())]);
    }
    // A create makes a machine of the other owner; lists and volumes only read. An orphan is another owner's (`delete.rs`).
    let others = [
        "machine.create",
        "machine.list",
        "machine.volumes",
        "orphan.delete",
    ];
    own.play.is_left_alone_by_others::<Aws>(&names, &others);
}

#[test]
fn marks_without_values_are_nobodys() {
    let full = "<value>tenant-1</value>";
    for (owner, tenant) in [
        ("", full),
        ("<value/>", full),
        ("<value>owner-1</value>", ""),
        ("<value> owner-1</value>", full),
    ] {
        let row = format!(
            "{ID}{STATE}{PLACE}{}",
            tags(&[("polity.dev/owner", owner), ("polity.dev/tenant", tenant)])
        );
        let server = server();
        server
            .borrow_mut()
            .instead
            .insert("DescribeInstances".into(), rows(&[&row]));
        let mut us = object(&server);
        let arguments = json!({"name": "web-1", "providerID": "aws:///eu-central-1a/i-01234567"});
        for operation in ["machine.status", "machine.delete", "machine.initialize"] {
            let failure = us.perform(operation, arguments.clone()).unwrap_err();
            assert_eq!(
                failure.code,
                Code::PermissionDenied,
                "{operation} {owner} {tenant}"
            );
        }
        assert_eq!(us.changes(), 0);
    }
}

#[test]
fn an_object_without_a_uid_owns_nothing() {
    let server = server();
    server.borrow_mut().machine("", "web-1");
    let mut nobody = object(&server);
    nobody.play.owner = String::new();
    let failure = nobody
        .perform("machine.delete", json!({"name": "web-1"}))
        .unwrap_err();
    assert_eq!((failure.code, nobody.changes()), (Code::NotFound, 0));
}

#[test]
fn a_row_without_what_every_instance_has_makes_the_look_fail() {
    let ours = tags(&[
        ("Name", "<value>web-1</value>"),
        ("polity.dev/owner", "<value>owner-1</value>"),
        ("polity.dev/tenant", "<value>tenant-1</value>"),
    ]);
    let server = server();
    let mut owner = object(&server);
    let mut look = |row: &str| {
        server
            .borrow_mut()
            .instead
            .insert("DescribeInstances".into(), rows(&[row]));
        owner.perform("machine.status", json!({"name": "web-1"}))
    };
    assert!(look(&format!("{ID}{STATE}{PLACE}{ours}")).is_ok());
    for row in [
        format!("{STATE}{PLACE}{ours}"),
        format!("{ID}{PLACE}{ours}"),
        format!("{ID}{STATE}{ours}"),
        format!("<instanceId/>{STATE}{PLACE}{ours}"),
        format!("<instanceId>../../x</instanceId>{STATE}{PLACE}{ours}"),
        format!("{ID}<instanceState><name>dancing</name></instanceState>{PLACE}{ours}"),
        format!("{ID}{STATE}<placement><availabilityZone>a/b</availabilityZone></placement>{ours}"),
        String::new(),
    ] {
        assert_eq!(look(&row).unwrap_err().code, Code::Internal, "{row}");
    }
}

#[test]
fn an_answer_about_another_instance_is_none() {
    let server = server();
    let mut owner = object(&server);
    let made = owner.create("web-1");
    let other = format!(
        "{ID}{STATE}{PLACE}{}",
        tags(&[
            ("polity.dev/owner", "<value>owner-1</value>"),
            ("polity.dev/tenant", "<value>tenant-1</value>")
        ])
    );
    server
        .borrow_mut()
        .instead
        .insert("DescribeInstances".into(), rows(&[&other]));
    let failure = owner.perform(
        "machine.delete",
        json!({"name": "web-1", "providerID": made["providerID"]}),
    );
    assert_eq!(failure.unwrap_err().code, Code::Internal);
    assert_eq!(owner.changes(), 1, "the create alone");
}

#[test]
fn garbage_is_a_failure_and_never_a_machine_that_is_gone() {
    let server = server();
    let mut owner = object(&server);
    let made = owner.create("web-1");
    let known = json!({"name": "web-1", "providerID": made["providerID"]});
    for reply in [
        Reply::new(200, ""),
        Reply::new(200, "ok"),
        Reply::new(200, [0xff, 0xfe, 0x00]),
        Reply::new(200, "<html><body>maintenance</body></html>"),
        Reply::new(200, "<DescribeInstancesResponse><reservationSet>"),
        Reply::new(204, ""),
        Reply::json(200, json!(null)),
        Reply::json(
            200,
            json!({"DescribeInstancesResponse": [{"reservationSet": "x"}]}),
        ),
        Reply::json(200, json!({"reservationSet": []})),
        describe(""),
        describe("<instancesSet/>"),
        Reply::new(
            200,
            "<TerminateInstancesResponse><reservationSet/></TerminateInstancesResponse>",
        ),
    ] {
        let said = format!("{reply:?}");
        server
            .borrow_mut()
            .instead
            .insert("DescribeInstances".into(), reply);
        for operation in ["machine.status", "machine.delete", "machine.initialize"] {
            for arguments in [json!({"name": "web-1"}), known.clone()] {
                let failure = owner.perform(operation, arguments).unwrap_err();
                assert_eq!(failure.code, Code::Internal, "{operation} {said}");
            }
        }
        assert_eq!(
            owner.perform("machine.list", json!({})).unwrap_err().code,
            Code::Internal,
            "{said}"
        );
    }
    assert_eq!(owner.changes(), 1, "the create alone");
}

#[test]
fn pages_that_go_round_in_a_circle_end() {
    let server = server();
    server.borrow_mut().instead.insert(
        "DescribeInstances".into(),
        describe("<reservationSet/><nextToken>a&amp;b</nextToken>"),
    );
    let mut owner = object(&server);
    let failure = owner.perform("machine.list", json!({})).unwrap_err();
    assert_eq!(failure.code, Code::Internal);
    assert_eq!(owner.play.sent.len(), 2);
    assert_eq!(owner.sent()[1]["NextToken"], "a&b");
}

#[test]
fn an_operation_of_another_service_is_unimplemented() {
    let mut owner = object(&server());
    let failure = owner.perform("vm.get", json!({})).unwrap_err();
    assert_eq!(failure.code, Code::Unimplemented);
}
