//! Mistakes and ambiguities of the original drawing, section (f) of the specification, that take more than one pass to
//! show: the policies do not do what a literal reading would. The others are cases and scenarios.

use std::time::Duration;

use polity_core::contract::{Act, Request};
use polity_core::record::PassRecord;
use polity_core::time::{Boot, millis};
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use serde_json::json;

use super::fixture::*;
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
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.kill_agent("o-cp-0").await;
    fixture.version(NEW).await;
    fixture
        .until_node("o-cp-0", "it is told", |node| told_by(node, DESIRED) == NEW)
        .await;
    fixture.sleep(Duration::from_secs(300)).await;
    assert_eq!(fixture.annotation("o-cp-0", READY).await, "true");
    let told = fixture.told(0);
    assert_eq!(told.last().map(String::as_str), Some("16 17 24 after 30 s"));
    fixture.start_agent("o-cp-0").await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

/// A dead agent blocks the rollout for ever. With `updateTimeout`, the Orb reports that after this time.
async fn erratum_08_a_dead_agent_blocks_the_rollout_and_no_second_node_is_touched(on: &dyn Backend) {
    for (timeout, phase, why) in [
        (json!({}), "maintaining", "WaitingForNodeAgent"),
        (json!({"updateTimeout": "10m"}), "degraded", "UpdateTimeout"),
    ] {
        let fixture = Fixture::running(on, json!({}), timeout, 2).await;
        fixture.kill_agent("o-cp-0").await;
        fixture.version(NEW).await;
        fixture.sleep(Duration::from_secs(3_600)).await;
        let orb = fixture.object().await;
        assert_eq!(
            (orb["status"]["phase"].as_str(), reason(&orb)),
            (Some(phase), why)
        );
        assert_eq!(fixture.annotation("o-cp-0", ALLOWED).await, "true");
        assert_eq!(fixture.cordoned().await, ["o-cp-0"]);
        assert_eq!(fixture.begun("node.ensure"), names(2));
        fixture.start_agent("o-cp-0").await;
        fixture.settles_again().await;
        assert_eq!(fixture.kubelets().await, [NEW; 3]);
    }
}

/// An upgrade of nodes one of which a person has cordoned; the nodes that are cordoned in the end.
async fn with_a_cordoned_node(on: &dyn Backend, undoes: bool) -> Vec<String> {
    let fixture = Fixture::running(on, json!({}), json!({"uncordonForeign": undoes}), 2).await;
    let node = reference("v1", "Node", None, "o-w-0");
    let cordon = json!({"spec": {"unschedulable": true}});
    fixture
        .site
        .patch(&node, None, cordon)
        .await
        .expect("it is there");
    fixture.version(NEW).await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
    fixture.cordoned().await
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
    let fixture = Fixture::begin(on, json!({"faults": [fails]}), json!({}), 1).await;
    for node in ["o-cp-1", "o-cp-2"] {
        fixture.start_agent(node).await;
    }
    let mut orb = orb(1, OLD);
    orb["spec"]["controlPlane"]["nodes"] = json!(3);
    fixture.create(&orb).await;
    fixture.until_second(29 * 60).await;
    assert!(fixture.begun("kubeadm.init").is_empty() && fixture.begun("kubeadm.join").is_empty());
    fixture.until_fine().await;
    fixture.settles().await;
    assert_eq!(fixture.begun("kubeadm.init"), ["o-cp-0"]);
    assert_eq!(fixture.begun("kubeadm.join"), ["o-cp-1", "o-cp-2", "o-w-0"]);
    assert!(
        fixture.told(0).iter().all(|pass| !pass.contains("09b 09b")),
        "one after the other: {:?}",
        fixture.told(0)
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
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.pod("web", "o-cp-0").await;
    let pod = reference("v1", "Pod", Some("default"), "web");
    let slow = json!({"metadata": {"finalizers": ["example.com/slow"]}});
    fixture.site.patch(&pod, None, slow).await.expect("it is there");
    let done = fixture.passes().len();
    fixture.version(NEW).await;
    fixture
        .until_passes(|_| fixture.acts_on_nodes(done).contains(&"delete web".to_owned()))
        .await;
    let passes = fixture.passes();
    let evicted = when(&passes, |act| matches!(act, Act::Evict(_)));
    let deleted = when(&passes, |act| matches!(act, Act::Delete(_)));
    let given = millis(deleted - evicted);
    assert!((90_000..100_000).contains(&given), "{given}");
    let free = json!({"metadata": {"finalizers": null}});
    fixture.site.patch(&pod, None, free).await.expect("it is there");
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn agents_of_another_release_are_installed_anew_first(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 1).await;
    fixture.settles().await;
    let orbs = reference("polity.dev/v1alpha1", "PolicyBinding", None, "orbs");
    let release = json!({"spec": {"policies": {"lifecycle": {"configuration": {"agentRelease": "2"}}}}});
    fixture
        .site
        .patch(&orbs, None, release)
        .await
        .expect("it is there");
    fixture
        .until("agents are installed", |_| {
            fixture.begun("agent.install").len() == 4
        })
        .await;
    fixture.settles_again().await;
    assert_eq!(fixture.begun("agent.install")[2..], names(1));
    assert_eq!(fixture.begun("node.ensure"), names(1), "and nothing else is done");
    assert!(fixture.machines().iter().all(|machine| machine.reboots == 1));
}

async fn a_new_node_is_never_newer_than_the_control_plane(on: &dyn Backend) {
    let fixture = Fixture::begin(on, json!({}), json!({}), 1).await;
    for node in ["o-cp-1", "o-cp-2", "o-w-1"] {
        fixture.start_agent(node).await;
    }
    let mut orb = orb(1, "1.28.3");
    orb["spec"]["controlPlane"]["nodes"] = json!(3);
    fixture.create(&orb).await;
    fixture.until_fine().await;
    fixture.version("1.29.1").await;
    fixture
        .until_node("o-cp-0", "it is upgraded", |node| {
            told_by(node, CURRENT) == "1.29.1"
        })
        .await;
    fixture.workers(2).await;
    fixture
        .until_node("o-w-1", "it has joined", |node| {
            !told_by(node, CURRENT).is_empty()
        })
        .await;
    assert_eq!(fixture.machine("o-w-1").installed["kubelet"], "1.28.3");
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, ["1.29.1"; 5]);
}

async fn tasks_whose_records_have_expired_are_told_by_what_there_is(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({"taskRetention": "1s"}), json!({}), 2).await;
    assert_eq!(fixture.begun("kubeadm.init"), ["o-cp-0"]);
    assert_eq!(fixture.begun("kubeadm.join"), names(2)[1..]);
    assert_eq!(fixture.begun("agent.install"), names(2));
    fixture.workers(1).await;
    fixture
        .until("one worker is left", |_| fixture.machines().len() == 2)
        .await;
    fixture.kill_agent("o-w-1").await;
    fixture.settles_again().await;
    assert!(fixture.node("o-w-1").await.is_null());
    assert_eq!(fixture.begun("pool.remove-machine"), ["o-w-1"]);
}
