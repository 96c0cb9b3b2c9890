//! Sets of machines: the number of machines is kept, whatever happens to them.

use std::time::Duration;

use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    mcm_m04_a_machine_that_fails_is_replaced,
    mcm_m04_a_machine_of_which_nobody_knows_whether_it_was_created_is_replaced,
    mcm_m10_a_change_of_the_template_reaches_the_nodes,
    mcm_m06_a_set_that_shrinks_deletes_by_priority_and_age,
    mcm_m02_a_machine_that_nobody_controls_is_adopted_and_one_that_leaves_is_replaced,
    mcm_m08_a_set_ends_with_its_machines,
    mcm_m09_a_set_that_would_create_without_end_creates_nothing,
}

const READY: &str = "status.readyReplicas";

/// A set of so many machines, on this cloud.
async fn begun(on: &dyn Backend, overrides: Value, replicas: u32) -> Story {
    let story = begin_with(on, overrides, vec![mcm::sets()], &mcm::set("web", replicas)).await;
    story.create(&mcm::set("web", replicas)).await;
    story
}

/// The names of the machines that are not being deleted.
async fn names(story: &Story) -> Vec<String> {
    let machines = story.site.list(mcm::MCM, "Machine").await;
    let live = machines
        .iter()
        .filter(|machine| machine["metadata"]["deletionTimestamp"].is_null());
    live.map(|machine| {
        machine["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    })
    .collect()
}

async fn until_names(story: &Story, wanted: &[&str]) {
    for _ in 0..3_600 {
        if names(story).await == wanted {
            return;
        }
        story.sleep(Duration::from_secs(1)).await;
    }
    panic!("the machines are {:?}", names(story).await);
}

/// Somebody merges this into a machine.
async fn edit_machine(story: &Story, name: &str, patch: Value) {
    let machine = reference(mcm::MCM, "Machine", Some("default"), name);
    story
        .site
        .patch(&machine, None, patch)
        .await
        .expect("the machine is there");
}

async fn mcm_m04_a_machine_that_fails_is_replaced(on: &dyn Backend) {
    let silent = json!({"vm": "web-1", "at": "5m", "does": "fallSilent"});
    let story = begun(on, json!({"events": [silent]}), 3).await;
    story.until_is(READY, 3).await;
    story.until_is(READY, 2).await;
    until_names(&story, &["web-2", "web-3", "web-4"]).await;
    story.settles().await;
    assert_eq!(story.object().await["status"]["readyReplicas"], 3);
    assert_eq!((made(&story), story.site.vms().len()), (4, 3));
}

async fn mcm_m04_a_machine_of_which_nobody_knows_whether_it_was_created_is_replaced(on: &dyn Backend) {
    let faults = json!([
        {"operation": "machine.create", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "until": "40m", "then": {"fail": {"code": "unavailable"}}},
    ]);
    let story = begun(on, json!({"faults": faults}), 1).await;
    until_names(&story, &["web-2"]).await;
    story.until_is(READY, 1).await;
    story.settles().await;
    assert_eq!((made(&story), story.site.vms().len()), (2, 1));
}

async fn mcm_m10_a_change_of_the_template_reaches_the_nodes(on: &dyn Backend) {
    let template = |label: &str, taint: &str| {
        json!({"spec": {"template": {"spec": {
            "drainTimeout": "5m",
            "nodeTemplate": {
                "metadata": {"labels": {label: "x"}},
                "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]},
            },
        }}}})
    };
    let story = begun(on, json!({}), 2).await;
    story.edit(template("first", "first")).await;
    story.until_is(READY, 2).await;
    story.settles().await;
    let mut next = template("second", "second");
    next["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["labels"]["first"] = json!(null);
    story.edit(next).await;
    story.settles().await;
    for name in ["web-1", "web-2"] {
        let node = reference("v1", "Node", None, &format!("node-{name}"));
        let node = story.site.get(&node).await.expect("it joined");
        let labels = &node["metadata"]["labels"];
        assert_eq!(
            (&labels["first"], &labels["second"]),
            (&json!(null), &json!("x")),
            "{node}"
        );
        let taints = node["spec"]["taints"].as_array().expect("taints");
        let keys: Vec<&Value> = taints.iter().map(|taint| &taint["key"]).collect();
        assert_eq!(keys, ["second"]);
        let machine = reference(mcm::MCM, "Machine", Some("default"), name);
        let machine = story.site.get(&machine).await.expect("it is there");
        assert_eq!(machine["spec"]["drainTimeout"], "5m");
    }
    assert_eq!((made(&story), story.site.vms().len()), (2, 2));
}

async fn mcm_m06_a_set_that_shrinks_deletes_by_priority_and_age(on: &dyn Backend) {
    let story = begun(on, json!({}), 4).await;
    story.until_is(READY, 4).await;
    let priority = |priority: &str| json!({"metadata": {"annotations": {"machinepriority.machine.sapcloud.io": priority}}});
    edit_machine(&story, "web-3", priority("1")).await;
    edit_machine(&story, "web-1", priority("5")).await;
    story.edit(json!({"spec": {"replicas": 3}})).await;
    until_names(&story, &["web-1", "web-2", "web-4"]).await;
    story.edit(json!({"spec": {"replicas": 1}})).await;
    until_names(&story, &["web-1"]).await;
    story.settles().await;
    assert_eq!((made(&story), story.site.vms().len()), (4, 1));
}

async fn mcm_m02_a_machine_that_nobody_controls_is_adopted_and_one_that_leaves_is_replaced(on: &dyn Backend) {
    let story = begun(on, json!({}), 2).await;
    story.until_is(READY, 2).await;
    // It is one too many, and the first by its priority.
    let mut stray = mcm::machine("stray");
    stray["metadata"]["annotations"] = json!({"machinepriority.machine.sapcloud.io": "9"});
    story.create(&stray).await;
    until_names(&story, &["stray", "web-2"]).await;
    story.settles().await;
    edit_machine(
        &story,
        "stray",
        json!({"metadata": {"labels": {"name": "others"}}}),
    )
    .await;
    until_names(&story, &["stray", "web-1", "web-2"]).await;
    story.settles().await;
    let released = reference(mcm::MCM, "Machine", Some("default"), "stray");
    let released = story.site.get(&released).await.expect("it is left alone");
    assert_eq!(
        released["metadata"]["ownerReferences"]
            .as_array()
            .map_or(0, Vec::len),
        0
    );
    assert_eq!(story.site.vms().len(), 3);
}

async fn mcm_m08_a_set_ends_with_its_machines(on: &dyn Backend) {
    let story = begun(on, json!({}), 2).await;
    story.until_is(READY, 2).await;
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(names(&story).await, [""; 0]);
    assert!(story.site.vms().is_empty());
}

async fn mcm_m09_a_set_that_would_create_without_end_creates_nothing(on: &dyn Backend) {
    let mut set = mcm::set("web", 2);
    set["spec"]["selector"]["matchLabels"]["name"] = "others".into();
    let story = begin_with(on, json!({}), vec![mcm::sets()], &set).await;
    story.create(&set).await;
    story.until_passes(|passes| passes.len() > 1).await;
    assert_eq!(told(&story), ["M09 Long", "M09 Long"]);
    assert_eq!(names(&story).await, [""; 0]);
    story
        .edit(json!({"spec": {"selector": {"matchLabels": {"name": mcm::DEPLOYMENT}}}}))
        .await;
    story.until_is(READY, 2).await;
}
