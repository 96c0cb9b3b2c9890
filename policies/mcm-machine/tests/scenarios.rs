//! The scenarios of the specification, (g) 1 to 17: passes one after the other against a small garden.

#[allow(unreachable_pub, reason = "a module of this test alone")]
mod garden;

use std::time::Duration;

use garden::{Garden, failure};
use polity_sdk::{Code, Resolution};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "spec": {"nodeName": node},
    })
}

fn budget(name: &str, allowed: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": name}}},
        "status": {"disruptionsAllowed": allowed, "expectedPods": 2, "desiredHealthy": 1},
    })
}

#[test]
fn from_creation_through_a_drain_to_nothing() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    garden.cluster.put(pod("web", "node-m"));
    story.world.delete();
    let all = story.settle();
    assert_eq!(all[2..5], ["D10 X17 Short", "D10 X17 Short", "D10 X17 Short"]);
    assert!(garden.cluster.get("Pod", "web").is_none());
    assert!(garden.cluster.get("Node", "node-m").is_none());
    assert!(story.world.object().is_none());
    assert!(garden.driver().vms.is_empty());
}

#[test]
fn scenario_01_create() {
    let garden = Garden::new();
    let mut story = garden.plant("m");
    assert_eq!(story.step(), "R10 R12 Short");
    assert_eq!(story.step(), "R14 C04 C06 C10 Short");
    assert_eq!(story.step(), "R14 C02 C11 Short");
    assert_eq!(story.phase(), "Pending");
    assert_eq!(story.step(), "R13 H11 H13 R15 S01 R16 after 60 s");
    garden.node("m", "True");
    assert_eq!(story.step(), "R13 H03 H05 H12 Short");
    assert_eq!(story.phase(), "Running");
    assert_eq!(story.step(), "R13 H13 R15 S05 S07 R17 Short");
    assert_eq!(story.step(), "R13 H13 R15 S08 R16 settled");
    assert_eq!(
        garden.cluster.get("Node", "node-m").unwrap()["metadata"]["labels"]["pool"],
        "a"
    );
    assert_eq!(garden.driver().changes, ["machine.create m", "revoke"]);
}

#[test]
fn scenario_02_a_creation_that_fails_twice_is_tried_again() {
    let garden = Garden::new();
    for _ in 0..2 {
        garden
            .driver()
            .instead
            .push(("machine.create", failure(Code::Unavailable)));
    }
    let mut story = garden.plant("m");
    story.pass();
    for _ in 0..2 {
        assert_eq!(story.step(), "R14 C04 C07 Short");
        assert_eq!(story.phase(), "CrashLoopBackOff");
    }
    assert_eq!(story.step(), "R14 C04 C06 C10 Short");
    assert_eq!(story.step(), "R14 C02 C11 Short");
    assert_eq!(story.phase(), "Pending");
    garden.node("m", "True");
    story.settle();
    assert_eq!(story.phase(), "Running");
}

#[test]
fn scenario_03_without_quota_a_machine_fails_after_its_time_and_is_replaced() {
    let garden = Garden::new();
    garden
        .driver()
        .always
        .insert("machine.create", failure(Code::ResourceExhausted));
    let mut story = garden.plant("m");
    story.pass();
    assert_eq!(story.step(), "R14 C04 C07 Long");
    assert_eq!(story.phase(), "CrashLoopBackOff");
    story.pass();
    assert_eq!(story.step(), "R14 C04 C07 Long");
    assert_eq!(story.phase(), "Failed");
    // The MachineSet deletes what is Failed.
    story.world.delete();
    assert_eq!(story.step(), "D05 D06 D07 Short");
}

#[test]
fn scenario_04_a_crash_after_the_creation_makes_no_second_vm() {
    let garden = Garden::new();
    let mut story = garden.plant("m");
    story.pass();
    let before = story.object();
    story.pass();
    // The publication never arrived, and the pending entry with it.
    story
        .world
        .edit(json!({"metadata": {"labels": {"node": null}}, "status": {"providerID": null}}));
    assert_eq!(
        before["status"]["providerID"],
        story.object()["status"]["providerID"]
    );
    assert_eq!(story.step(), "R14 C02 C10 Short");
    assert_eq!(garden.driver().changes, ["machine.create m"]);
}

#[test]
fn scenario_04_a_creation_in_doubt_is_settled_before_anything_else() {
    let garden = Garden::new();
    let mut story = garden.plant("m");
    story.pass();
    garden
        .driver()
        .instead
        .push(("machine.create", failure(Code::DeadlineExceeded)));
    assert_eq!(story.step(), "R14 C04 C07 Short");
    story.doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()));
    assert_eq!(story.step(), "C13 Short");
    garden.driver().vms.insert("m".into(), "sim:///vm-9".into());
    let made = json!({"providerID": "sim:///vm-9", "nodeName": "node-m"});
    story.doubt(Resolution::Done(made.to_string()));
    assert_eq!(story.step(), "C14 R14 C10 Short");
    assert_eq!(story.step(), "R14 C02 C11 Short");
    assert_eq!(story.world.status()["providerID"], "sim:///vm-9");
    assert!(garden.driver().changes.is_empty());
}

#[test]
fn scenario_05_a_machine_that_never_joins_fails() {
    let garden = Garden::new();
    let mut story = garden.plant("m").pending();
    while story.phase() == "Pending" {
        story.pass();
    }
    assert_eq!(story.phase(), "Failed");
    assert_eq!(story.world.status()["lastOperation"]["state"], "Failed");
    assert_eq!(story.world.status()["lastOperation"]["type"], "Create");
    let age = story.world.now().unix_ms() - 1_767_225_600_000;
    assert!((20 * 60_000..22 * 60_000).contains(&age), "{age}");
}

#[test]
fn scenario_06_a_node_that_is_not_ready_and_comes_back_is_running_again() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    garden.node("m", "Unknown");
    assert_eq!(story.step(), "R13 H03 H04 H12 Short");
    assert_eq!(story.phase(), "Unknown");
    for _ in 0..9 {
        assert_eq!(story.step(), "R13 H11 H13 R15 S08 R16 after 60 s");
    }
    garden.node("m", "True");
    assert_eq!(story.step(), "R13 H03 H06 H12 Short");
    assert_eq!(story.phase(), "Running");
}

#[test]
fn scenario_07_a_machine_whose_node_is_deleted_fails_after_ten_minutes() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    garden.cluster.remove("Node", "node-m");
    assert_eq!(story.step(), "R13 H02 H12 Short");
    for _ in 0..10 {
        assert_eq!(story.step(), "R13 H11 H13 R15 S01 R16 after 60 s");
    }
    assert_eq!(story.step(), "R13 H08 Short");
    assert_eq!(story.phase(), "Failed");
}

#[test]
fn scenario_08_in_a_zone_outage_machines_are_replaced_one_after_the_other() {
    let garden = Garden::new();
    let mut stories: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| garden.plant(name).running())
        .collect();
    for (story, name) in stories.iter_mut().zip(["a", "b", "c"]) {
        garden.node(name, "Unknown");
        assert_eq!(story.step(), "R13 H03 H04 H12 Short");
        story.world.advance(11 * MINUTE);
    }
    garden.driver().busy = true;
    assert_eq!(stories[0].step(), "R13 H10 Short");
    garden.driver().busy = false;
    assert_eq!(stories[0].step(), "R13 H08 Short");
    assert_eq!(stories[1].step(), "R13 H09 Short");
    assert_eq!(stories[2].step(), "R13 H09 Short");
    // Its MachineSet deletes it; while it is Terminating nobody else may fail.
    stories[0].world.delete();
    stories[0].pass();
    assert_eq!(stories[1].step(), "R13 H09 Short");
    stories[0].settle();
    // Its replacement counts from its first moment until it is Running.
    let replacement = garden.plant("d");
    garden.cluster.put(replacement.object());
    assert_eq!(stories[1].step(), "R13 H09 Short");
    let _replacement = replacement.running();
    assert_eq!(stories[1].step(), "R13 H08 Short");
    assert_eq!(stories[2].step(), "R13 H09 Short");
}

#[test]
fn scenario_09_an_orderly_deletion_is_five_requeues() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    story.world.delete();
    let begin = story.world.now();
    assert_eq!(
        story.settle(),
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D14 D24 D26 Short",
            "D10 X13 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert_eq!(story.world.now().since(begin), Duration::from_secs(25));
    assert!(story.world.object().is_none());
    assert!(garden.cluster.get("Node", "node-m").is_none());
}

#[test]
fn scenario_10_a_vm_that_is_gone_needs_no_drain() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    garden.driver().vms.clear();
    story.world.delete();
    assert_eq!(
        story.settle(),
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D15 D16 D17 D22 D25 D26 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert_eq!(garden.driver().changes, ["machine.create m", "revoke"]);
}

#[test]
fn scenario_10_where_the_binding_says_so_the_driver_may_clean_up_after_a_vm_that_is_gone() {
    let garden = Garden::new();
    let config = json!({"notFoundStillDeletes": true});
    let mut story = garden.plant_with("m", config).running();
    garden.driver().vms.clear();
    story.world.delete();
    assert_eq!(
        story.settle(),
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D15 D16 D17 X03 D24 D26 Short",
            "D10 X13 Short",
            "X21 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
}

/// A machine that is about to be drained.
fn draining(garden: &Garden, config: Value) -> garden::Story {
    let mut story = garden.plant_with("m", config).running();
    story.world.delete();
    story.pass();
    story.pass();
    story
}

#[test]
fn scenario_11_a_budget_that_never_allows_ends_with_a_forced_drain() {
    let garden = Garden::new();
    let mut story = draining(&garden, json!({}));
    let mut hopeless = budget("web", 0);
    hopeless["status"]["desiredHealthy"] = 2.into();
    garden.cluster.put(pod("web", "node-m"));
    garden.cluster.put(hopeless);
    let deleted: polity_sdk::Time =
        serde_json::from_value(story.object()["metadata"]["deletionTimestamp"].clone()).unwrap();
    while story.world.now().since(deleted) <= Duration::from_secs(2 * 3600) {
        assert_eq!(story.step(), "D10 X15 Short");
        assert_eq!(story.world.status()["conditions"][0]["reason"], "DrainFailed");
    }
    assert!(garden.cluster.get("Pod", "web").is_some());
    // Even the forced drain cannot delete it.
    garden.cluster.edit(
        "Pod",
        "web",
        json!({"metadata": {"finalizers": ["example.com/never"]}}),
    );
    assert_eq!(story.step(), "D10 X12 X17 Short");
    story.world.advance(MINUTE);
    assert_eq!(story.step(), "D10 X12 X14 Short");
    assert_eq!(story.step(), "X16 Short");
    assert_eq!(story.step(), "X20 Short");
}

#[test]
fn scenario_11_a_budget_that_refuses_for_now_is_asked_every_20_seconds() {
    let garden = Garden::new();
    let mut story = draining(&garden, json!({}));
    garden.cluster.put(pod("web", "node-m"));
    garden.cluster.put(budget("web", 0));
    let begin = story.world.now();
    for _ in 0..10 {
        assert_eq!(story.step(), "D10 X17 Short");
        assert_eq!(story.world.status()["conditions"][0]["reason"], "EvictionRefused");
    }
    assert_eq!(story.world.now().since(begin), Duration::from_secs(200));
    garden.cluster.edit(
        "PodDisruptionBudget",
        "web",
        json!({"status": {"disruptionsAllowed": 1}}),
    );
    assert_eq!(story.step(), "D10 X17 Short");
    story.world.advance(MINUTE);
    assert_eq!(story.step(), "D10 X13 Short");
}

#[test]
fn scenario_11_evictions_that_are_refused_too_often_end_with_a_forced_drain() {
    let garden = Garden::new();
    let mut story = draining(&garden, json!({"maxEvictRetries": 2}));
    garden.cluster.put(pod("web", "node-m"));
    garden.cluster.put(budget("web", 0));
    assert_eq!(story.step(), "D10 X17 Short");
    assert_eq!(story.step(), "D10 X17 Short");
    assert_eq!(story.step(), "D10 X12 X17 Short");
    assert_eq!(story.step(), "D10 X12 X13 Short");
}

#[test]
fn scenario_12_the_label_forces_the_first_pass_of_the_drain() {
    let garden = Garden::new();
    let mut story = draining(&garden, json!({}));
    garden.cluster.put(pod("web", "node-m"));
    garden.cluster.put(budget("web", 0));
    story
        .world
        .edit(json!({"metadata": {"labels": {"force-deletion": "True"}}}));
    assert_eq!(story.step(), "D10 X12 X17 Short");
    assert!(garden.cluster.get("Pod", "web").is_none());
    assert_eq!(story.step(), "D10 X12 X13 Short");
    assert_eq!(story.step(), "X16 Short");
    story.settle();
    assert!(story.world.object().is_none());
}

#[test]
fn scenario_13_a_driver_without_credentials_keeps_the_machine_until_they_are_right() {
    let garden = Garden::new();
    let mut story = draining(&garden, json!({}));
    story.pass();
    garden
        .driver()
        .always
        .insert("machine.delete", failure(Code::Unauthenticated));
    for _ in 0..3 {
        assert_eq!(story.step(), "X23 Long");
        assert_eq!(story.phase(), "Terminating");
        assert_eq!(story.world.status()["lastOperation"]["state"], "Failed");
        assert_eq!(
            story.world.status()["lastOperation"]["errorCode"],
            "unauthenticated"
        );
    }
    garden.driver().always.clear();
    assert_eq!(story.step(), "X20 Short");
}

#[test]
fn scenario_14_an_answer_that_does_not_decode_starts_the_deletion_again() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    story.world.delete();
    story.pass();
    garden
        .driver()
        .instead
        .push(("machine.status", Ok(r#"{"id": 5}"#.to_owned())));
    assert_eq!(story.step(), "D09 D12 D13 D15 D16 D18 D19 D27 Long");
    assert_eq!(story.world.status()["lastOperation"]["nextOp"], "FailedDecode");
    assert_eq!(story.step(), "X50 Short");
    assert_eq!(story.step(), "D09 D12 D13 D14 D24 D26 Short");
}

#[test]
fn scenario_15_a_deleting_machine_without_its_finalizer_is_left_alone() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    story
        .world
        .edit(json!({"metadata": {"finalizers": ["example.com/theirs"]}}));
    story.world.delete();
    let mut told = story.object();
    assert_eq!(story.step(), "D02 D03 Long");
    // But that it is left alone.
    told["status"]["conditions"] = story.object()["status"]["conditions"].clone();
    assert_eq!(told["status"]["conditions"][0]["type"], "Reconciled");
    assert_eq!(story.object(), told);
    assert_eq!(garden.driver().vms.len(), 1);
}

#[test]
fn scenario_16_only_the_taint_that_was_applied_is_removed() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    let ours = json!({"key": "ours", "value": "x", "effect": "NoSchedule"});
    let theirs = json!({"key": "theirs", "effect": "NoExecute"});
    story
        .world
        .edit(json!({"spec": {"nodeTemplate": {"spec": {"taints": [ours]}}}}));
    garden
        .cluster
        .edit("Node", "node-m", json!({"spec": {"taints": [theirs]}}));
    assert_eq!(story.step(), "R13 H13 R15 S06 S07 R17 Short");
    assert_eq!(story.step(), "R13 H13 R15 S08 R16 settled");
    story
        .world
        .edit(json!({"spec": {"nodeTemplate": {"spec": {"taints": []}}}}));
    assert_eq!(story.step(), "R13 H13 R15 S04 S07 R17 Short");
    assert_eq!(
        garden.cluster.get("Node", "node-m").unwrap()["spec"]["taints"],
        json!([theirs])
    );
}

fn freeze(garden: &Garden, frozen: bool, since: polity_sdk::Time) {
    garden.cluster.put(json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety", "metadata": {"name": "default"},
        "status": {"frozen": frozen, "since": since},
    }));
}

#[test]
fn scenario_17_while_frozen_live_machines_rest_and_deletions_go_on() {
    let garden = Garden::new();
    let mut live = garden.plant("m").running();
    let mut deleting = garden.plant("n").running();
    freeze(&garden, true, live.world.now());
    garden.node("m", "Unknown");
    deleting.world.delete();
    assert_eq!(live.step(), "R25x after 600 s");
    assert_eq!(live.phase(), "Running");
    deleting.settle();
    assert!(deleting.world.object().is_none());
}

#[test]
fn scenario_17_after_the_thaw_a_machine_that_was_unknown_has_its_whole_time_again() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    garden.node("m", "Unknown");
    story.pass();
    story.world.advance(9 * MINUTE);
    freeze(&garden, true, story.world.now());
    assert_eq!(story.step(), "R25x after 600 s");
    freeze(&garden, false, story.world.now());
    assert_eq!(story.step(), "R26x Short");
    assert_eq!(story.phase(), "Running");
    assert_eq!(story.step(), "R13 H04 H12 Short");
    assert_eq!(story.step(), "R13 H11 H13 R15 S08 R16 after 60 s");
    assert_eq!(story.phase(), "Unknown");
}
