//! Scenarios (g) 6, 7, 8 and 16: nodes that are not healthy, and the labels, annotations and taints of nodes.

use std::time::Duration;

use polity_core::record::PassRecord;
use polity_core::time::{Boot, millis};
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::specified::mcm as specified;
use serde_json::json;

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_06_a_node_that_is_not_ready_and_comes_back_is_running_again,
    scenario_07_a_machine_whose_node_is_deleted_fails_after_ten_minutes,
    scenario_08_in_a_zone_outage_machines_are_replaced_one_after_the_other,
    mcm_h06_a_node_that_joins_late_wakes_the_machine_that_failed_for_it,
    mcm_h14_a_machine_may_stay_unknown_if_it_says_so,
    mcm_s03_what_was_applied_last_is_not_guessed,
    mcm_s09_a_template_that_the_api_server_refuses_is_tried_again,
    scenario_16_only_the_taint_that_was_applied_is_removed,
    erratum_09_the_label_is_the_link_and_the_status_mirrors_it,
}

async fn mcm_h06_a_node_that_joins_late_wakes_the_machine_that_failed_for_it(on: &dyn Backend) {
    let never = json!({"operation": "machine.create", "then": "neverJoins"});
    let story = planted(on, json!({"faults": [never]}), json!({})).await;
    let machine = story.until_is(PHASE, "Failed").await;
    story.sleep(Duration::from_secs(60)).await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": machine["status"]["node"]},
        "spec": {"providerID": machine["status"]["providerID"]},
    });
    story.create(&node).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let node = reference("v1", "Node", None, NODE);
    story
        .site
        .patch(&node, Some("status"), ready)
        .await
        .expect("the node is there");
    let joined = story.site.clock.now().boot;
    story.until_is(PHASE, "Running").await;
    // Unwoken it would wait for the rest of ten minutes.
    assert!(millis(story.site.clock.now().boot - joined) < specified::MEDIUM);
}

/// Unknown, and not for too long yet.
const WATCHED: &str = "R13 H11 H13 R15 S08 R16 after 60 s";

async fn scenario_06_a_node_that_is_not_ready_and_comes_back_is_running_again(on: &dyn Backend) {
    let events = json!([
        {"vm": "m-1", "at": "5m", "does": {"nodeProblem": "notReady"}},
        {"vm": "m-1", "at": "14m", "does": "recover"},
    ]);
    let story = running(on, json!({"events": events}), json!({})).await;
    let done = story.passes().len();
    story.until_is(PHASE, "Unknown").await;
    let object = story.until_is(PHASE, "Running").await;
    story.settles().await;
    let told = told(&story).split_off(done);
    assert_eq!(told[0], "R13 H03 H04 H12 Short");
    let watched = told[1..].iter().take_while(|pass| *pass == WATCHED).count();
    assert_eq!(watched, 9, "{told:?}");
    assert_eq!(told[1 + watched..], ["R13 H03 H06 H12 Short", FINE]);
    assert_eq!(object["status"]["lastOperation"]["type"], "HealthCheck");
    assert_eq!(made(&story), 1);
}

async fn scenario_07_a_machine_whose_node_is_deleted_fails_after_ten_minutes(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    let gone = story
        .site
        .delete(&reference("v1", "Node", None, NODE), None)
        .await;
    gone.expect("the node was there");
    story.until_is(PHASE, "Unknown").await;
    story.until_is(PHASE, "Failed").await;
    let told = told(&story).split_off(done);
    assert_eq!(told[0], "R13 H02 H12 Short");
    let watched = |pass: &&String| *pass == "R13 H11 H13 R15 S01 R16 after 60 s";
    assert_eq!(told[1..].iter().take_while(watched).count(), 10, "{told:?}");
    assert_eq!(told[11..], ["R13 H08 Short"]);
    let passes = &story.passes()[done..];
    let elapsed = millis(passes[11].started.boot - passes[0].started.boot);
    assert!(
        (specified::HEALTH..specified::HEALTH + 70_000).contains(&elapsed),
        "{elapsed}"
    );
}

async fn scenario_08_in_a_zone_outage_machines_are_replaced_one_after_the_other(on: &dyn Backend) {
    let events: Vec<_> = ["m-1", "m-2", "m-3"]
        .map(|name| json!({"vm": name, "at": "5m", "does": "fallSilent"}))
        .into();
    let story = running(on, json!({"events": events}), json!({})).await;
    another(&story, "m-2").await;
    another(&story, "m-3").await;
    let replaced = ["r-1", "r-2", "r-3"];
    let running = |name: &str| told_of(&story, name).last().map(String::as_str) == Some(FINE);
    for _ in 0..3_600 {
        story.sleep(Duration::from_secs(1)).await;
        machine_set(&story, 3).await;
        if replaced.iter().all(|name| running(name)) {
            break;
        }
    }
    story.settles().await;

    let of = |name: &str| story.host.passes_of(name);
    let mut lost: Vec<PassRecord> = ["m-1", "m-2", "m-3"].into_iter().flat_map(of).collect();
    lost.sort_by_key(|pass| pass.started.boot);
    let judged = |pass: &&PassRecord| ["H08", "H09", "H10"].iter().any(|id| tell(pass).contains(id));
    let judged: Vec<(Boot, String)> = lost
        .iter()
        .filter(judged)
        .map(|pass| (pass.started.boot, tell(pass)))
        .collect();
    let given_up: Vec<Boot> = judged
        .iter()
        .filter(|(_, told)| told == "R13 H08 Short")
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(given_up.len(), 3, "{judged:?}");
    // From one to the next: the machine is gone, and its replacement is running.
    for (pair, replacement) in given_up.windows(2).zip(replaced) {
        let between = |pass: &PassRecord| (pair[0]..pair[1]).contains(&pass.started.boot);
        let joined = of(replacement)
            .into_iter()
            .find(|pass| tell(pass) == "R13 H03 H05 H12 Short");
        assert!(
            joined.as_ref().is_some_and(between),
            "{replacement} is running between {pair:?}: {joined:?}"
        );
        let left = lost
            .iter()
            .filter(|pass| tell(pass) == "X40 settled")
            .any(between);
        assert!(left, "a machine is gone between {pair:?}");
        let waited = judged
            .iter()
            .filter(|(at, told)| (pair[0]..pair[1]).contains(at) && told == "R13 H09 Short");
        assert!(waited.count() > 5, "the others wait between {pair:?}");
    }
    let machines = story.site.list(mcm::MCM, "Machine").await;
    assert_eq!(machines.len(), 3);
    assert_eq!(story.site.vms().len(), 3);
}

async fn mcm_h14_a_machine_may_stay_unknown_if_it_says_so(on: &dyn Backend) {
    let silent = json!({"vm": "m-1", "at": "5m", "does": "fallSilent"});
    let story = running(on, json!({"events": [silent]}), json!({})).await;
    story.edit(json!({"spec": {"disableHealthTimeout": true}})).await;
    story.until_is(PHASE, "Unknown").await;
    story.sleep(Duration::from_secs(3_600)).await;
    assert_eq!(
        story.object().await["status"]["currentStatus"]["phase"],
        "Unknown"
    );
    assert_eq!(
        told(&story).last().map(String::as_str),
        Some("R13 H14 H13 R15 S08 R16 Long")
    );
}

async fn scenario_16_only_the_taint_that_was_applied_is_removed(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    let ours = json!({"key": "ours", "value": "x", "effect": "NoSchedule"});
    let theirs = json!({"key": "theirs", "effect": "NoExecute"});
    edit_node(&story, json!({"spec": {"taints": [theirs]}})).await;
    story.settles().await;
    story
        .edit(json!({"spec": {"nodeTemplate": {"spec": {"taints": [ours]}}}}))
        .await;
    story.until_passes(|passes| passes.len() > done + 1).await;
    story.settles().await;
    assert_eq!(node(&story).await["spec"]["taints"], json!([theirs, ours]));
    story
        .edit(json!({"spec": {"nodeTemplate": {"spec": {"taints": []}}}}))
        .await;
    story.until_passes(|passes| passes.len() > done + 3).await;
    story.settles().await;
    let told = told(&story).split_off(done);
    // Of the user's taint the machine hears, and does nothing.
    let told: Vec<&str> = told
        .iter()
        .map(String::as_str)
        .skip_while(|pass| *pass == FINE)
        .collect();
    assert_eq!(
        told,
        [
            "R13 H13 R15 S06 S07 R17 Short",
            FINE,
            "R13 H13 R15 S04 S07 R17 Short",
            FINE,
        ]
    );
    assert_eq!(node(&story).await["spec"]["taints"], json!([theirs]));
}

async fn mcm_s09_a_template_that_the_api_server_refuses_is_tried_again(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    let labels = |value: &str| json!({"spec": {"nodeTemplate": {"metadata": {"labels": {"pool": value}}}}});
    story.edit(labels("not the value of a label")).await;
    story.until_passes(|passes| passes.len() > done + 1).await;
    assert_eq!(told(&story)[done..done + 2], ["R13 H13 R15 S09 R17 Short"; 2]);
    assert_eq!(node(&story).await["metadata"]["labels"]["pool"], "a");
    story.edit(labels("b")).await;
    until_fine(&story).await;
    assert_eq!(node(&story).await["metadata"]["labels"]["pool"], "b");
}

async fn mcm_s03_what_was_applied_last_is_not_guessed(on: &dyn Backend) {
    const LAST_APPLIED: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";
    let story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    let garbled = json!({"metadata": {"annotations": {LAST_APPLIED: "{"}, "labels": {"pool": "theirs"}}});
    edit_node(&story, garbled).await;
    story.until_passes(|passes| passes.len() > done + 2).await;
    assert_eq!(told(&story)[done..], ["R13 H13 R15 S03 R17 Short"; 3]);
    assert_eq!(node(&story).await["metadata"]["labels"]["pool"], "theirs");

    edit_node(&story, json!({"metadata": {"annotations": {LAST_APPLIED: null}}})).await;
    until_fine(&story).await;
    assert_eq!(node(&story).await["metadata"]["labels"]["pool"], "a");
}

/// Literally, `status.node` is the link. It is a mirror: a label that was lost or changed is put right.
async fn erratum_09_the_label_is_the_link_and_the_status_mirrors_it(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    assert_eq!(story.object().await["status"]["node"], NODE);
    for other in [json!(null), json!("node-of-somebody-else")] {
        let done = story.passes().len();
        story.edit(json!({"metadata": {"labels": {"node": other}}})).await;
        story.until_passes(|passes| passes.len() > done).await;
        until_fine(&story).await;
        assert_eq!(told(&story)[done..], ["R14 C02 C10 Short", FINE]);
        let machine = story.object().await;
        assert_eq!(machine["metadata"]["labels"]["node"], NODE);
        assert_eq!(machine["status"]["node"], NODE);
    }
    assert_eq!(made(&story), 1);
}
