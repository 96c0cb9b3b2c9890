//! Machines that are to be replaced, that vanish, and that leave: what the drawing leaves out, (d4) of the specification.

use std::time::Duration;

use polity_tests::host_harness::backend::Backend;
use polity_tests::stand::reference;
use serde_json::{Value, json};

use super::land::*;
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

fn machine_names(land: &Land) -> Vec<String> {
    land.machines().into_iter().map(|machine| machine.name).collect()
}

/// Waits until these machines are left.
async fn until_left(land: &Land, names: &[&str]) {
    let left = format!("{names:?} are left");
    land.until(&left, |_| machine_names(land) == names).await;
}

async fn a_machine_that_is_to_be_replaced_leaves_when_another_one_has_joined(on: &dyn Backend) {
    let land = Land::running(on, event("retire"), json!({}), 2).await;
    land.start_agent("o-w-2").await;
    land.until_second(THEN - 1).await;
    let done = land.passes().len();
    land.until("another one has joined", |orb| {
        orb["status"]["machines"]["o-w-2"]["joined"] == true
    })
    .await;
    assert!(!land.node("o-w-0").await.is_null());
    until_left(&land, &["o-cp-0", "o-w-1", "o-w-2"]).await;
    land.kill_agent("o-w-0").await;
    land.settles_again().await;
    assert_eq!(
        land.told(done),
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
    assert!(land.node("o-w-0").await.is_null());
}

async fn unless_the_binding_replaces_no_machines(on: &dyn Backend) {
    let land = Land::running(on, event("retire"), json!({"replaceMachines": false}), 2).await;
    land.until_second(THEN).await;
    let done = land.passes().len();
    land.sleep(Duration::from_secs(600)).await;
    assert_eq!(land.told(done), [FINE]);
    assert_eq!(machine_names(&land), names(2));
}

/// The first worker may be changed, and its agent is dead.
async fn stuck_in_a_change(on: &dyn Backend, trouble: Value) -> Land {
    let land = Land::running(on, trouble, json!({}), 2).await;
    land.until_second(THEN / 2).await;
    land.kill_agent("o-w-0").await;
    land.version(NEW).await;
    land.until_node("o-w-0", "it may change", |node| told_by(node, ALLOWED) == "true")
        .await;
    land
}

async fn the_change_of_a_node_whose_machine_is_to_be_replaced_is_given_up(on: &dyn Backend) {
    let land = stuck_in_a_change(on, event("retire")).await;
    land.until_second(THEN - 1).await;
    assert_eq!(land.kubelets().await, [NEW, OLD, OLD]);
    land.start_agent("o-w-2").await;
    until_left(&land, &["o-cp-0", "o-w-1", "o-w-2"]).await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

async fn the_change_of_a_node_that_is_gone_is_over(on: &dyn Backend) {
    let land = stuck_in_a_change(on, event("vanish")).await;
    land.until_second(THEN).await;
    let node = reference("v1", "Node", None, "o-w-0");
    land.site.delete(&node, None).await.expect("it is there");
    land.start_agent("o-w-0").await;
    land.settles_again().await;
    assert_eq!(machine_names(&land), ["o-cp-0", "o-w-1", "o-w-0"]);
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

async fn a_node_whose_machine_is_gone_may_not_change_any_more_before_another_one_may(on: &dyn Backend) {
    let land = stuck_in_a_change(on, event("vanish")).await;
    land.until_second(THEN - 1).await;
    let uid = land.node("o-w-0").await["metadata"]["uid"].clone();
    land.until_node("o-w-0", "it may not change any more", |node| {
        told_by(node, ALLOWED) != "true"
    })
    .await;
    let gone = land.node("o-w-0").await;
    assert!(gone.is_null() || gone["metadata"]["uid"] == uid);
    assert_eq!(
        land.begun("node.ensure")[3..],
        ["o-cp-0"],
        "no other one was changed"
    );
    land.start_agent("o-w-0").await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

async fn a_scale_down_that_is_taken_back_uncordons_its_node(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    land.pod("web", "o-w-1").await;
    land.budget("web", 1).await;
    land.workers(1).await;
    land.until("it is drained", |orb| reason(orb).starts_with("Drain"))
        .await;
    assert_eq!(land.cordoned().await, ["o-w-1"]);
    land.workers(2).await;
    land.settles_again().await;
    assert!(land.cordoned().await.is_empty());
    assert!(land.has_pod("web").await);
    assert_eq!(machine_names(&land), names(2));
}

async fn while_a_node_is_changed_no_other_one_leaves(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    land.version(NEW).await;
    land.until("the second node installs", |_| {
        land.begun("node.ensure").len() == 5
    })
    .await;
    let done = land.passes().len();
    land.workers(1).await;
    until_left(&land, &["o-cp-0", "o-w-0"]).await;
    land.kill_agent("o-w-1").await;
    land.settles_again().await;
    let told = land.told(done);
    let done = told.iter().position(|pass| pass.contains(" 23 "));
    let leaves = told.iter().position(|pass| pass.contains("34 04"));
    assert!(done.is_some() && done < leaves, "{told:?}");
    assert_eq!(land.kubelets().await, [NEW; 2]);
}

async fn orb_33_an_orb_that_is_deleted_while_a_machine_may_have_been_added_waits(on: &dyn Backend) {
    let faults = json!([
        {"operation": "pool.add-machine", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "count": 3, "then": {"fail": {"code": "unavailable"}}},
    ]);
    let land = Land::begin(on, json!({"faults": faults, "lag": "3s"}), json!({}), 1).await;
    land.create(&orb(1, OLD)).await;
    land.until_reason("AddInDoubt").await;
    let done = land.passes().len();
    land.delete().await;
    land.until("it is gone", Value::is_null).await;
    let told = land.told(done);
    assert!(
        told[0].starts_with("29") && told.contains(&"33 after 30 s".to_owned()),
        "{told:?}"
    );
    assert!(land.machines().is_empty());
}

/// The code takes the tail of a list of ids. Who leaves is: whoever is to be replaced, then the highest number; never
/// the last control plane.
async fn erratum_14_who_leaves_is_determined(on: &dyn Backend) {
    let mut land = Land::running(on, event("retire"), json!({}), 3).await;
    land.until_second(THEN - 30).await;
    // Orbiter hears of both at once.
    land.story
        .without_a_host(async |story| {
            story.sleep(Duration::from_secs(60)).await;
            let two = json!([{"provider": "static", "pool": "w", "nodes": 2}]);
            story.edit(json!({"spec": {"workers": two}})).await;
        })
        .await;
    until_left(&land, &["o-cp-0", "o-w-1", "o-w-2"]).await;
    land.kill_agent("o-w-0").await;
    land.workers(1).await;
    until_left(&land, &["o-cp-0", "o-w-1"]).await;
    land.kill_agent("o-w-2").await;
    // Another pool for the control plane: the old one stays until the new one has joined.
    land.start_agent("o-new-0").await;
    land.edit(json!({"spec": {"controlPlane": {"pool": "new"}}}))
        .await;
    land.until("the new one has joined", |orb| {
        orb["status"]["machines"]["o-new-0"]["joined"] == true
    })
    .await;
    assert!(machine_names(&land).contains(&"o-cp-0".to_owned()));
    until_left(&land, &["o-w-1", "o-new-0"]).await;
}
