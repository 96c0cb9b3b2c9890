//! The list of machines.

use polity_driver_sdk::Code;
use serde_json::{Value, json};

use crate::ec2::{object, server};

fn names(answer: &Value) -> Vec<&str> {
    let machines = answer["machines"].as_array().unwrap();
    machines
        .iter()
        .map(|machine| machine["name"].as_str().unwrap())
        .collect()
}

#[test]
fn the_machines_of_all_owners_of_the_tenant_are_listed() {
    let server = server();
    let mut owner = object(&server);
    assert_eq!(
        owner.perform("machine.list", json!({})).unwrap(),
        json!({"machines": []})
    );
    let id = |owner: &str, name: &str| {
        format!(
            "aws:///eu-central-1a/{}",
            server.borrow_mut().machine(owner, name).id
        )
    };
    let (first, second) = (id("owner-1", "web-1"), id("owner-2", "web-2"));
    assert_eq!(
        owner.perform("machine.list", json!({})).unwrap(),
        json!({"machines": [
            {"name": "web-1", "providerID": first, "owner": "owner-1"},
            {"name": "web-2", "providerID": second, "owner": "owner-2"},
        ]})
    );
}

#[test]
fn the_machines_of_one_owner_are_listed_by_ec2_itself() {
    let server = server();
    for nth in 0..450 {
        server
            .borrow_mut()
            .machine(&format!("owner-{}", nth % 150), "web");
    }
    let mut owner = object(&server);
    for filters in [true, false] {
        server.borrow_mut().filters = filters;
        let listed = owner
            .perform("machine.list", json!({"owner": "owner-7"}))
            .unwrap();
        let rows = listed["machines"].as_array().unwrap();
        assert_eq!(rows.len(), 3, "{filters}");
        assert!(rows.iter().all(|row| row["owner"] == "owner-7"));
        if filters {
            assert_eq!(owner.play.sent.len(), 1, "one page");
        }
    }
}

#[test]
fn what_is_of_another_tenant_or_of_nobody_or_gone_is_not_listed_even_without_filters() {
    let server = server();
    server.borrow_mut().machine("owner-1", "ours");
    server.borrow_mut().machine("owner-1", "gone").state = "terminated";
    server.borrow_mut().machine("", "nobody's");
    server.borrow_mut().make(&[
        ("Name", "theirs"),
        ("polity.dev/owner", "o"),
        ("polity.dev/tenant", "tenant-2"),
    ]);
    server
        .borrow_mut()
        .make(&[("Name", "unmarked"), ("polity.dev/tenant", "tenant-1")]);
    let no_value = ("polity.dev/owner".to_owned(), None);
    server
        .borrow_mut()
        .machine("x", "no value")
        .tags
        .extend([no_value]);
    server.borrow_mut().make(&[]);
    let mut owner = object(&server);
    for filters in [true, false] {
        server.borrow_mut().filters = filters;
        assert_eq!(
            names(&owner.perform("machine.list", json!({})).unwrap()),
            ["ours"],
            "{filters}"
        );
    }
}

#[test]
fn a_machine_whose_name_was_taken_away_is_listed() {
    let server = server();
    server.borrow_mut().machine("owner-1", "x").tags.remove("Name");
    let listed = object(&server).perform("machine.list", json!({})).unwrap();
    assert_eq!(names(&listed), [""]);
}

#[test]
fn a_list_is_read_to_its_last_page() {
    let server = server();
    for nth in 0..1_250 {
        server.borrow_mut().machine("owner-1", &format!("web-{nth}"));
    }
    let mut owner = object(&server);
    server.borrow_mut().page = 50;
    let listed = owner.perform("machine.list", json!({})).unwrap();
    assert_eq!(names(&listed).len(), 1_250);
    assert_eq!(owner.play.sent.len(), 25);
    let sent = owner.sent();
    assert!(sent[0].get("NextToken").is_none());
    assert_eq!(sent[24]["NextToken"], "1200");
    // The same filters and the same size with each page.
    assert!(
        sent.iter()
            .all(|page| page.below("Filter") == sent[0].below("Filter"))
    );
}

#[test]
fn a_list_without_end_is_a_failure_and_no_list() {
    let server = server();
    for nth in 0..40 {
        server.borrow_mut().machine("owner-1", &format!("web-{nth}"));
    }
    server.borrow_mut().page = 1;
    let failure = object(&server).perform("machine.list", json!({})).unwrap_err();
    assert_eq!(failure.code, Code::ResourceExhausted, "{}", failure.message);
}

#[test]
fn a_machine_that_stands_in_two_pages_is_listed_once() {
    let server = server();
    for nth in 0..9 {
        server.borrow_mut().machine("owner-1", &format!("web-{nth}"));
    }
    (server.borrow_mut().page, server.borrow_mut().overlap) = (3, 1);
    let listed = object(&server).perform("machine.list", json!({})).unwrap();
    assert_eq!(names(&listed).len(), 9);
}
