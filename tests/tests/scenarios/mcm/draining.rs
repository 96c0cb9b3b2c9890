//! Scenarios (g) 11 and 12: pods that leave before their machine does.

use std::time::Duration;

use polity_core::time::millis;
use polity_tests::host_fixture::{condition_of, reference};
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use polity_tests::specified::mcm as specified;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_11_a_budget_that_never_allows_ends_with_a_forced_drain,
    scenario_11_a_budget_that_refuses_for_now_is_asked_every_20_seconds,
    scenario_11_evictions_that_are_refused_too_often_end_with_a_forced_drain,
    scenario_12_the_label_forces_the_first_pass_of_the_drain,
    mcm_x11_a_node_that_was_lost_long_ago_is_not_waited_for,
    mcm_x15_pods_that_do_not_end_are_said,
    mcm_x18_volumes_are_followed_to_another_node,
    mcm_x19_a_volume_that_the_cloud_has_not_detached_is_waited_for,
}

/// The first two passes of a deletion.
const BEFORE: usize = 2;

/// A pod that is ready.
pub(crate) async fn pod(story: &Story, name: &str, node: &str, more: Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 5, "containers": [{"name": "web", "image": "web"}],
        },
    });
    polity_tests::simulation::store::merge(&mut pod, &more);
    story.create(&pod).await;
    ready(story, name, true).await;
}

async fn ready(story: &Story, name: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    let pod = reference("v1", "Pod", Some("default"), name);
    let patched = story.site.patch(&pod, Some("status"), status).await;
    patched.expect("the pod is there");
}

async fn get_pod(story: &Story, name: &str) -> Option<Value> {
    story
        .site
        .get(&reference("v1", "Pod", Some("default"), name))
        .await
}

/// Wants so many of the pods to stay.
pub(crate) async fn budget(story: &Story, min_available: u32) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "default", "name": "web"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": "web"}}},
    });
    story.create(&budget).await;
}

fn drained(machine: &Value) -> (Value, Value) {
    let condition = condition_of(machine, "Drained").cloned().unwrap_or_default();
    (condition["status"].clone(), condition["reason"].clone())
}

async fn scenario_11_a_budget_that_never_allows_ends_with_a_forced_drain(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    // Even by force this pod does not go.
    let kept = json!({"metadata": {"finalizers": ["example.com/never"]}});
    pod(&story, "web", NODE, kept).await;
    budget(&story, 1).await;
    story.delete().await;
    let deleted = story.site.clock.now().boot;
    story.sleep(Duration::from_secs(2 * 3_600 - 1)).await;
    let blocked = told(&story).split_off(done + BEFORE);
    assert!(
        blocked.iter().all(|pass| pass == "D10 X15 Short"),
        "{:?}",
        blocked.iter().find(|pass| *pass != "D10 X15 Short")
    );
    let pauses = pauses(&story.passes()[done + BEFORE..]);
    assert!(
        pauses
            .iter()
            .all(|pause| (specified::SHORT..specified::SHORT + 500).contains(pause))
    );
    let machine = story.object().await;
    assert_eq!(drained(&machine), (json!("False"), json!("DrainFailed")));
    assert!(
        get_pod(&story, "web").await.expect("it is there")["metadata"]["deletionTimestamp"].is_null(),
        "it was never evicted"
    );

    until_gone(&story).await;
    let passes = story.passes().split_off(done + BEFORE + blocked.len());
    let mut told: Vec<String> = passes.iter().map(tell).collect();
    assert!(millis(passes[0].started.boot - deleted) > specified::DRAIN);
    told.dedup();
    assert_eq!(
        told,
        [
            "D10 X12 X17 Short",
            "D10 X12 X14 Short",
            "X16 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    let minute = passes
        .iter()
        .filter(|pass| tell(pass) == "D10 X12 X17 Short")
        .count();
    assert!((12..=13).contains(&minute), "{minute}");
}

async fn scenario_11_a_budget_that_refuses_for_now_is_asked_every_20_seconds(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    pod(&story, "web", NODE, json!({})).await;
    pod(&story, "other", "elsewhere", json!({})).await;
    ready(&story, "other", false).await;
    budget(&story, 1).await;
    story.delete().await;
    story
        .until_passes(|passes| passes.len() > done + BEFORE + 9)
        .await;
    let refused = told(&story).split_off(done + BEFORE);
    assert_eq!(refused, ["D10 X17 Short"; 10]);
    let machine = story.object().await;
    assert_eq!(drained(&machine), (json!("False"), json!("EvictionRefused")));
    let pauses = pauses(&story.passes()[done + BEFORE..]);
    assert!(
        pauses
            .iter()
            .all(|pause| (specified::EVICTION..specified::EVICTION + 500).contains(pause)),
        "{pauses:?}"
    );

    ready(&story, "other", true).await;
    until_gone(&story).await;
    let mut told = told(&story).split_off(done + BEFORE + refused.len());
    told.dedup();
    assert_eq!(
        told,
        [
            "D10 X17 Short",
            "D10 X13 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled"
        ]
    );
    assert!(get_pod(&story, "web").await.is_none());
    assert!(get_pod(&story, "other").await.is_some());
}

async fn scenario_11_evictions_that_are_refused_too_often_end_with_a_forced_drain(on: &dyn Backend) {
    let story = running(on, json!({}), json!({"maxEvictRetries": 2})).await;
    let done = story.passes().len();
    pod(&story, "web", NODE, json!({})).await;
    pod(&story, "other", "elsewhere", json!({})).await;
    ready(&story, "other", false).await;
    budget(&story, 1).await;
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(
        told(&story)[done + BEFORE..],
        [
            "D10 X17 Short",
            "D10 X17 Short",
            "D10 X12 X17 Short",
            "D10 X12 X13 Short",
            "X16 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
}

async fn scenario_12_the_label_forces_the_first_pass_of_the_drain(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    pod(&story, "web", NODE, json!({})).await;
    budget(&story, 1).await;
    story
        .edit(json!({"metadata": {"labels": {"force-deletion": "True"}}}))
        .await;
    story.settles().await;
    let done = story.passes().len();
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(
        told(&story)[done + BEFORE..],
        [
            "D10 X12 X17 Short",
            "D10 X12 X13 Short",
            "X16 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert!(get_pod(&story, "web").await.is_none());
}

async fn mcm_x11_a_node_that_was_lost_long_ago_is_not_waited_for(on: &dyn Backend) {
    let silent = json!({"vm": "m-1", "at": "5m", "does": "fallSilent"});
    let story = running(on, json!({"events": [silent]}), json!({})).await;
    pod(&story, "web", NODE, json!({})).await;
    budget(&story, 1).await;
    story.until_is(PHASE, "Unknown").await;
    story.sleep(Duration::from_secs(5 * 60 + 1)).await;
    let done = story.passes().len();
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(
        told(&story)[done + BEFORE..],
        [
            "D10 X11 X17 Short",
            "D10 X12 X11 X13 Short",
            "X16 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
}

async fn mcm_x15_pods_that_do_not_end_are_said(on: &dyn Backend) {
    let story = running(on, json!({}), json!({"drainTimeout": "10m"})).await;
    let done = story.passes().len();
    let kept = json!({"metadata": {"finalizers": ["example.com/never"]}});
    pod(&story, "web", NODE, kept).await;
    story.delete().await;
    let said = story
        .until("the drain failed", |machine| drained(machine).1 == "DrainFailed")
        .await;
    let condition = condition_of(&said, "Drained").expect("a condition");
    assert_eq!(condition["message"], "pod default/web does not end");
    until_gone(&story).await;
    let mut told = told(&story).split_off(done + BEFORE);
    told.dedup();
    assert_eq!(
        told[..4],
        [
            "D10 X17 Short",
            "D10 X15 Short",
            "D10 X12 X17 Short",
            "D10 X12 X14 Short"
        ]
    );
}

async fn mcm_x18_volumes_are_followed_to_another_node(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let attachment = |name: &str, node: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": "csi.example.com", "nodeName": node, "source": {"persistentVolumeName": "data"}},
        })
    };
    let attached = async |name: &str| {
        let attachment = reference("storage.k8s.io/v1", "VolumeAttachment", None, name);
        let patched = story
            .site
            .patch(&attachment, Some("status"), json!({"status": {"attached": true}}));
        patched.await.expect("the attachment is there");
    };
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "default", "name": "data"},
        "spec": {
            "volumeName": "data", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    story.create(&claim).await;
    story.create(&attachment("here", NODE)).await;
    attached("here").await;
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
    pod(&story, "web", NODE, json!({"spec": {"volumes": [volume]}})).await;
    let done = story.passes().len();
    story.delete().await;
    let stage = async |stage: &str| story.until_is("status.drain.moving.stage", stage).await;
    stage("Detaching").await;
    let here = reference("storage.k8s.io/v1", "VolumeAttachment", None, "here");
    story.site.delete(&here, None).await.expect("it is there");
    stage("Reattaching").await;
    story.create(&attachment("there", "elsewhere")).await;
    attached("there").await;
    until_gone(&story).await;
    let mut told = told(&story).split_off(done + BEFORE);
    told.dedup();
    assert_eq!(
        told,
        [
            "D10 X17 Short",
            "D10 X18 Short",
            "D10 X13 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
}

async fn mcm_x19_a_volume_that_the_cloud_has_not_detached_is_waited_for(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "data"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.example.com", "volumeHandle": "vol-7"},
        },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "default", "name": "data"},
        "spec": {
            "volumeName": "data", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "here"},
        "spec": {"attacher": "csi.example.com", "nodeName": NODE, "source": {"persistentVolumeName": "data"}},
    });
    for object in [&volume, &claim, &attachment] {
        story.create(object).await;
    }
    let on_node = async |volumes: Value| {
        let node = reference("v1", "Node", None, NODE);
        let status = json!({"status": {"volumesAttached": volumes}});
        let patched = story.site.patch(&node, Some("status"), status).await;
        patched.expect("the node is there");
    };
    on_node(json!([{"name": "kubernetes.io/csi/csi.example.com^vol-7", "devicePath": ""}])).await;
    let used = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
    pod(&story, "web", NODE, json!({"spec": {"volumes": [used]}})).await;
    let done = story.passes().len();
    story.delete().await;
    story.until_is("status.drain.moving.stage", "Detaching").await;
    let machine = story.object().await;
    assert_eq!(machine["status"]["drain"]["moving"]["ids"], json!(["vol-7"]));
    let here = reference("storage.k8s.io/v1", "VolumeAttachment", None, "here");
    story.site.delete(&here, None).await.expect("it is there");
    story.sleep(Duration::from_secs(30)).await;
    let machine = story.object().await;
    assert_eq!(
        machine["status"]["drain"]["moving"]["stage"], "Detaching",
        "the cloud has not detached it"
    );
    on_node(json!([])).await;
    story.until_is("status.drain.moving.stage", "Reattaching").await;
    until_gone(&story).await;
    let mut told = told(&story).split_off(done + BEFORE);
    told.dedup();
    assert_eq!(told[0], "D10 X19 X17 Short");
    assert_eq!(told[told.len() - 3..], ["X20 Short", "X30 Short", "X40 settled"]);
}
