//! Machines that are to be replaced, that vanish, and that leave: section (d4) of the specification, which the original
//! drawing leaves out.

use std::time::Duration;

use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    a_machine_that_is_to_be_replaced_leaves_when_another_one_has_joined,
    unless_the_binding_replaces_no_machines,
    the_change_of_a_node_whose_machine_is_to_be_replaced_is_given_up,
    the_change_of_a_node_that_is_gone_is_over,
    a_node_whose_machine_is_gone_may_not_change_any_more_before_another_one_may,
    a_scale_down_that_is_taken_back_uncordons_its_node,
    while_a_node_is_changed_no_other_one_leaves,
    orb_33_an_orb_that_is_deleted_while_a_machine_may_have_been_added_waits,
    erratum_14_who_leaves_is_determined,
}

/// When something happens to a machine.
const THEN: u64 = 20 * 60;

/// At that time this happens to the first worker's machine.
fn event(what: &str) -> Value {
    json!({"events": [{"vm": "o-w-0", "at": format!("{THEN}s"), "does": what}]})
}

fn machine_names(fixture: &Fixture) -> Vec<String> {
    fixture
        .machines()
        .into_iter()
        .map(|machine| machine.name)
        .collect()
}

/// Waits until these machines are left.
async fn until_left(fixture: &Fixture, names: &[&str]) {
    let left = format!("{names:?} are left");
    fixture.until(&left, |_| machine_names(fixture) == names).await;
}

async fn a_machine_that_is_to_be_replaced_leaves_when_another_one_has_joined(on: &dyn Backend) {
    let fixture = Fixture::running(on, event("retire"), json!({}), 2).await;
    fixture.start_agent("o-w-2").await;
    fixture.until_second(THEN - 1).await;
    let done = fixture.passes().len();
    fixture
        .until("another one has joined", |orb| {
            orb["status"]["machines"]["o-w-2"]["joined"] == true
        })
        .await;
    assert!(!fixture.node("o-w-0").await.is_null());
    until_left(&fixture, &["o-cp-0", "o-w-1", "o-w-2"]).await;
    fixture.kill_agent("o-w-0").await;
    fixture.settles_again().await;
    assert_eq!(
        fixture.told(done),
        [
            "03 after 30 s",
            "05 after 30 s",
            "08 after 30 s",
            "09b after 30 s",
            "30 after 30 s",
            "34 04 after 30 s",
            "30 after 30 s",
            FINE,
        ]
    );
    assert!(fixture.node("o-w-0").await.is_null());
}

async fn unless_the_binding_replaces_no_machines(on: &dyn Backend) {
    let fixture = Fixture::running(on, event("retire"), json!({"replaceMachines": false}), 2).await;
    fixture.until_second(THEN).await;
    let done = fixture.passes().len();
    fixture.sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.told(done), [FINE]);
    assert_eq!(machine_names(&fixture), names(2));
}

/// The first worker may be changed, and its agent is dead.
async fn stuck_in_a_change(on: &dyn Backend, overrides: Value) -> Fixture {
    let fixture = Fixture::running(on, overrides, json!({}), 2).await;
    fixture.until_second(THEN / 2).await;
    fixture.kill_agent("o-w-0").await;
    fixture.version(NEW).await;
    fixture
        .until_node("o-w-0", "it may change", |node| told_by(node, ALLOWED) == "true")
        .await;
    fixture
}

async fn the_change_of_a_node_whose_machine_is_to_be_replaced_is_given_up(on: &dyn Backend) {
    let fixture = stuck_in_a_change(on, event("retire")).await;
    fixture.until_second(THEN - 1).await;
    assert_eq!(fixture.kubelets().await, [NEW, OLD, OLD]);
    fixture.start_agent("o-w-2").await;
    until_left(&fixture, &["o-cp-0", "o-w-1", "o-w-2"]).await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn the_change_of_a_node_that_is_gone_is_over(on: &dyn Backend) {
    let fixture = stuck_in_a_change(on, event("vanish")).await;
    fixture.until_second(THEN).await;
    let node = reference("v1", "Node", None, "o-w-0");
    fixture.site.delete(&node, None).await.expect("it is there");
    fixture.start_agent("o-w-0").await;
    fixture.settles_again().await;
    assert_eq!(machine_names(&fixture), ["o-cp-0", "o-w-1", "o-w-0"]);
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn a_node_whose_machine_is_gone_may_not_change_any_more_before_another_one_may(on: &dyn Backend) {
    let fixture = stuck_in_a_change(on, event("vanish")).await;
    fixture.until_second(THEN - 1).await;
    let uid = fixture.node("o-w-0").await["metadata"]["uid"].clone();
    fixture
        .until_node("o-w-0", "it may not change any more", |node| {
            told_by(node, ALLOWED) != "true"
        })
        .await;
    let gone = fixture.node("o-w-0").await;
    assert!(gone.is_null() || gone["metadata"]["uid"] == uid);
    assert_eq!(
        fixture.begun("node.ensure")[3..],
        ["o-cp-0"],
        "no other one was changed"
    );
    fixture.start_agent("o-w-0").await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn a_scale_down_that_is_taken_back_uncordons_its_node(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.pod("web", "o-w-1").await;
    fixture.budget("web", 1).await;
    fixture.workers(1).await;
    fixture
        .until("it is drained", |orb| reason(orb).starts_with("Drain"))
        .await;
    assert_eq!(fixture.cordoned().await, ["o-w-1"]);
    fixture.workers(2).await;
    fixture.settles_again().await;
    assert!(fixture.cordoned().await.is_empty());
    assert!(fixture.has_pod("web").await);
    assert_eq!(machine_names(&fixture), names(2));
}

async fn while_a_node_is_changed_no_other_one_leaves(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.version(NEW).await;
    fixture
        .until("the second node installs", |_| {
            fixture.begun("node.ensure").len() == 5
        })
        .await;
    let done = fixture.passes().len();
    fixture.workers(1).await;
    until_left(&fixture, &["o-cp-0", "o-w-0"]).await;
    fixture.kill_agent("o-w-1").await;
    fixture.settles_again().await;
    let told = fixture.told(done);
    let done = told.iter().position(|pass| pass.contains(" 23 "));
    let leaves = told.iter().position(|pass| pass.contains("34 04"));
    assert!(done.is_some() && done < leaves, "{told:?}");
    assert_eq!(fixture.kubelets().await, [NEW; 2]);
}

async fn orb_33_an_orb_that_is_deleted_while_a_machine_may_have_been_added_waits(on: &dyn Backend) {
    let faults = json!([
        {"operation": "pool.add-machine", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "count": 3, "then": {"fail": {"code": "unavailable"}}},
    ]);
    let fixture = Fixture::begin(on, json!({"faults": faults, "lag": "3s"}), json!({}), 1).await;
    fixture.create(&orb(1, OLD)).await;
    fixture.until_reason("AddInDoubt").await;
    let done = fixture.passes().len();
    fixture.delete().await;
    fixture.until("it is gone", Value::is_null).await;
    let told = fixture.told(done);
    assert!(
        told[0].starts_with("29") && told.contains(&"33 after 30 s".to_owned()),
        "{told:?}"
    );
    assert!(fixture.machines().is_empty());
}

/// The code takes the tail of a list of ids. Here the machine that leaves is the machine to be replaced, or else the machine with
/// the highest number; never the last control plane.
async fn erratum_14_who_leaves_is_determined(on: &dyn Backend) {
    let mut fixture = Fixture::running(on, event("retire"), json!({}), 3).await;
    fixture.until_second(THEN - 30).await;
    // Orbiter hears of both at once.
    fixture
        .story
        .without_a_host(async |story| {
            story.sleep(Duration::from_secs(60)).await;
            let two = json!([{"provider": "static", "pool": "w", "nodes": 2}]);
            story.edit(json!({"spec": {"workers": two}})).await;
        })
        .await;
    until_left(&fixture, &["o-cp-0", "o-w-1", "o-w-2"]).await;
    fixture.kill_agent("o-w-0").await;
    fixture.workers(1).await;
    until_left(&fixture, &["o-cp-0", "o-w-1"]).await;
    fixture.kill_agent("o-w-2").await;
    // Another pool for the control plane: the old one stays until the new one has joined.
    fixture.start_agent("o-new-0").await;
    fixture
        .edit(json!({"spec": {"controlPlane": {"pool": "new"}}}))
        .await;
    fixture
        .until("the new one has joined", |orb| {
            orb["status"]["machines"]["o-new-0"]["joined"] == true
        })
        .await;
    assert!(machine_names(&fixture).contains(&"o-cp-0".to_owned()));
    until_left(&fixture, &["o-w-1", "o-new-0"]).await;
}
