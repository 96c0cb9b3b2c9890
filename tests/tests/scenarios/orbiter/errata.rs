//! Mistakes and ambiguities of the drawing, (f) of the specification, that take more than a pass to tell: what the
//! literal reading would do, and that the policies do not. The others are cases and scenarios.

use std::time::Duration;

use polity_core::contract::{Act, Request};
use polity_core::record::PassRecord;
use polity_core::time::{Boot, millis};
use polity_tests::host_harness::backend::Backend;
use polity_tests::stand::reference;
use serde_json::json;

use super::land::*;
use crate::scenarios::scenarios;

scenarios! {
    erratum_07_a_node_is_never_done_in_between,
    erratum_08_a_dead_agent_blocks_the_rollout_and_no_second_node_is_touched,
    erratum_10_a_node_that_a_person_has_cordoned_stays_cordoned,
    erratum_10_unless_the_binding_says_otherwise,
    erratum_11_control_planes_join_one_after_the_other_and_before_the_workers,
    erratum_13_a_pod_has_its_time_to_end_and_half_a_minute_more,
    agents_of_another_release_are_installed_anew_first,
    a_new_node_is_never_newer_than_the_control_plane,
    tasks_whose_records_have_expired_are_told_by_what_there_is,
}

/// Between the write of what is wanted and the agent's first word the node still says that it is ready.
async fn erratum_07_a_node_is_never_done_in_between(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    land.kill_agent("o-cp-0").await;
    land.version(NEW).await;
    land.until_node("o-cp-0", "it is told", |node| told_by(node, DESIRED) == NEW)
        .await;
    land.sleep(Duration::from_secs(300)).await;
    assert_eq!(land.annotation("o-cp-0", READY).await, "true");
    let told = land.told(0);
    assert_eq!(told.last().map(String::as_str), Some("16 17 24 after 30 s"));
    land.start_agent("o-cp-0").await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

/// A dead agent blocks the rollout for ever; whoever wants to hear of that says after how long.
async fn erratum_08_a_dead_agent_blocks_the_rollout_and_no_second_node_is_touched(on: &dyn Backend) {
    for (timeout, phase, why) in [
        (json!({}), "maintaining", "WaitingForNodeAgent"),
        (json!({"updateTimeout": "10m"}), "degraded", "UpdateTimeout"),
    ] {
        let land = Land::running(on, json!({}), timeout, 2).await;
        land.kill_agent("o-cp-0").await;
        land.version(NEW).await;
        land.sleep(Duration::from_secs(3_600)).await;
        let orb = land.object().await;
        assert_eq!(
            (orb["status"]["phase"].as_str(), reason(&orb)),
            (Some(phase), why)
        );
        assert_eq!(land.annotation("o-cp-0", ALLOWED).await, "true");
        assert_eq!(land.cordoned().await, ["o-cp-0"]);
        assert_eq!(land.begun("node.ensure"), names(2));
        land.start_agent("o-cp-0").await;
        land.settles_again().await;
        assert_eq!(land.kubelets().await, [NEW; 3]);
    }
}

/// An upgrade of nodes one of which a person has cordoned; the nodes that are cordoned in the end.
async fn with_a_cordoned_node(on: &dyn Backend, undoes: bool) -> Vec<String> {
    let land = Land::running(on, json!({}), json!({"uncordonForeign": undoes}), 2).await;
    let node = reference("v1", "Node", None, "o-w-0");
    let cordon = json!({"spec": {"unschedulable": true}});
    land.site.patch(&node, None, cordon).await.expect("it is there");
    land.version(NEW).await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
    land.cordoned().await
}

/// Literally, orbiter uncordons what a person has cordoned.
async fn erratum_10_a_node_that_a_person_has_cordoned_stays_cordoned(on: &dyn Backend) {
    assert_eq!(with_a_cordoned_node(on, false).await, ["o-w-0"]);
}

async fn erratum_10_unless_the_binding_says_otherwise(on: &dyn Backend) {
    assert_eq!(with_a_cordoned_node(on, true).await, [""; 0]);
}

/// One machine that is not prepared lets nobody join. The drawing wins.
async fn erratum_11_control_planes_join_one_after_the_other_and_before_the_workers(on: &dyn Backend) {
    let fails = json!({
        "operation": "node.ensure", "vm": "o-cp-2", "until": "30m", "then": {"failTask": {"fault": "NoMirror"}},
    });
    let land = Land::begin(on, json!({"faults": [fails]}), json!({}), 1).await;
    for node in ["o-cp-1", "o-cp-2"] {
        land.start_agent(node).await;
    }
    let mut orb = orb(1, OLD);
    orb["spec"]["controlPlane"]["nodes"] = json!(3);
    land.create(&orb).await;
    land.until_second(29 * 60).await;
    assert!(land.begun("kubeadm.init").is_empty() && land.begun("kubeadm.join").is_empty());
    land.until_fine().await;
    land.settles().await;
    assert_eq!(land.begun("kubeadm.init"), ["o-cp-0"]);
    assert_eq!(land.begun("kubeadm.join"), ["o-cp-1", "o-cp-2", "o-w-0"]);
    assert!(
        land.told(0).iter().all(|pass| !pass.contains("09b 09b")),
        "one after the other: {:?}",
        land.told(0)
    );
}

/// When a pass did this to the pod, and had its answer.
fn when(passes: &[PassRecord], is: impl Fn(&Act) -> bool) -> Boot {
    let did = |pass: &&PassRecord| {
        let mut entries = pass.roles.iter().flat_map(|role| &role.journal);
        entries.any(|entry| matches!(&entry.request, Request::Act(act) if is(act)) && entry.answer.is_ok())
    };
    passes.iter().find(did).expect("it was done").started.boot
}

/// The code waits nanoseconds where it means seconds: it deletes pods that were just told to end.
async fn erratum_13_a_pod_has_its_time_to_end_and_half_a_minute_more(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    land.pod("web", "o-cp-0").await;
    let pod = reference("v1", "Pod", Some("default"), "web");
    let slow = json!({"metadata": {"finalizers": ["example.com/slow"]}});
    land.site.patch(&pod, None, slow).await.expect("it is there");
    let done = land.passes().len();
    land.version(NEW).await;
    land.until_passes(|_| land.acts_on_nodes(done).contains(&"delete web".to_owned()))
        .await;
    let passes = land.passes();
    let evicted = when(&passes, |act| matches!(act, Act::Evict(_)));
    let deleted = when(&passes, |act| matches!(act, Act::Delete(_)));
    let given = millis(deleted - evicted);
    assert!((90_000..100_000).contains(&given), "{given}");
    let free = json!({"metadata": {"finalizers": null}});
    land.site.patch(&pod, None, free).await.expect("it is there");
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

async fn agents_of_another_release_are_installed_anew_first(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 1).await;
    land.settles().await;
    let orbs = reference("polity.dev/v1alpha1", "PolicyBinding", None, "orbs");
    let release = json!({"spec": {"policies": {"lifecycle": {"configuration": {"agentRelease": "2"}}}}});
    land.site.patch(&orbs, None, release).await.expect("it is there");
    land.until("agents are installed", |_| land.begun("agent.install").len() == 4)
        .await;
    land.settles_again().await;
    assert_eq!(land.begun("agent.install")[2..], names(1));
    assert_eq!(land.begun("node.ensure"), names(1), "and nothing else is done");
    assert!(land.machines().iter().all(|machine| machine.reboots == 1));
}

async fn a_new_node_is_never_newer_than_the_control_plane(on: &dyn Backend) {
    let land = Land::begin(on, json!({}), json!({}), 1).await;
    for node in ["o-cp-1", "o-cp-2", "o-w-1"] {
        land.start_agent(node).await;
    }
    let mut orb = orb(1, "1.28.3");
    orb["spec"]["controlPlane"]["nodes"] = json!(3);
    land.create(&orb).await;
    land.until_fine().await;
    land.version("1.29.1").await;
    land.until_node("o-cp-0", "it is upgraded", |node| {
        told_by(node, CURRENT) == "1.29.1"
    })
    .await;
    land.workers(2).await;
    land.until_node("o-w-1", "it has joined", |node| {
        !told_by(node, CURRENT).is_empty()
    })
    .await;
    assert_eq!(land.machine("o-w-1").installed["kubelet"], "1.28.3");
    land.settles_again().await;
    assert_eq!(land.kubelets().await, ["1.29.1"; 5]);
}

async fn tasks_whose_records_have_expired_are_told_by_what_there_is(on: &dyn Backend) {
    let land = Land::running(on, json!({"taskRetention": "1s"}), json!({}), 2).await;
    assert_eq!(land.begun("kubeadm.init"), ["o-cp-0"]);
    assert_eq!(land.begun("kubeadm.join"), names(2)[1..]);
    assert_eq!(land.begun("agent.install"), names(2));
    land.workers(1).await;
    land.until("one worker is left", |_| land.machines().len() == 2)
        .await;
    land.kill_agent("o-w-1").await;
    land.settles_again().await;
    assert!(land.node("o-w-1").await.is_null());
    assert_eq!(land.begun("pool.remove-machine"), ["o-w-1"]);
}
