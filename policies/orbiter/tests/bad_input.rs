//! What bad input gets: a condition with a clear reason, another try, and nothing else. Nothing is deleted because of it,
//! and no second node is touched meanwhile.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod land;

use land::{ALLOWED, Land, READY};
use polity_sdk::test::World;
use polity_sdk::{Code, Next, RetryClass};
use serde_json::{Value, json};

const DESIRED: &str = "alpha.kubelet.caos.ch/desired-version";
const CURRENT: &str = "alpha.kubelet.caos.ch/current-version";

fn orb(spec: Value) -> Value {
    json!({
        "apiVersion": "orbiter.polity.dev/v1alpha1", "kind": "Orb", "metadata": {"name": "o", "uid": "u"}, "spec": spec,
    })
}

#[test]
fn a_pool_of_minus_one_does_not_decode_and_nothing_is_asked() {
    let ended = World::new(orb(json!({
        "controlPlane": {"pool": "cp", "nodes": 1}, "workers": [{"pool": "w", "nodes": -1}],
        "versions": {"kubernetes": "1.30.2"},
    })))
    .manifest(&orbiter::manifest())
    .pass(orbiter::reconcile);
    let Next::Retry(retry) = &ended.next else {
        panic!("{}", ended.next)
    };
    let failure = retry.failure.as_ref().unwrap();
    assert_eq!(
        (retry.class, failure.code),
        (RetryClass::Long, Code::InvalidArgument)
    );
    assert!(failure.message.contains("nodes"), "{}", failure.message);
    assert!(ended.journal.is_empty());
}

#[test]
fn an_orb_that_makes_no_sense_says_so_and_nothing_is_asked() {
    let fine = json!({
        "controlPlane": {"pool": "cp", "nodes": 1}, "workers": [{"pool": "w", "nodes": 1}],
        "versions": {"kubernetes": "1.30.2"},
    });
    for (path, value, said) in [
        ("/controlPlane/nodes", json!(2), "1, 3 or 5"),
        ("/controlPlane/nodes", json!(0), "1, 3 or 5"),
        ("/controlPlane/pool", json!("w"), "two pools"),
        ("/workers/0/pool", json!(""), "no name"),
        ("/workers/0/nodes", json!(4_000_000_000u32), "1000"),
        ("/versions/kubernetes", json!("banana"), "no release"),
        ("/versions/kubernetes", json!("1.30"), "no release"),
        ("/versions", json!({}), "no release"),
        (
            "/versions",
            json!({"kubernetes": "1.30.2", "containerd": "1; reboot"}),
            "no version",
        ),
        (
            "/versions",
            json!({"kubernetes": "1.30.2", "g++/x": "1"}),
            "no version",
        ),
    ] {
        let mut spec = fine.clone();
        *spec.pointer_mut(path).unwrap() = value;
        let mut world = World::new(orb(spec)).manifest(&orbiter::manifest());
        let ended = world.pass(orbiter::reconcile);
        assert!(ended.journal.is_empty() && ended.notes.is_empty());
        let condition = &world.status()["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!("SpecInvalid"))
        );
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
        assert!(matches!(&ended.next, Next::Retry(retry) if retry.class == RetryClass::Short));
    }
}

/// One node is being changed to something that it cannot become.
fn stuck(land: &mut Land, seconds: u64) {
    land.live(seconds);
    assert_eq!(land.allowed(), ["o-cp-0"]);
    assert_eq!(land.cordoned(), ["o-cp-0"]);
    assert_eq!(land.names().len(), 3);
    assert!(land.done("delete").is_empty() && land.done("pool.remove-machine").is_empty());
}

#[test]
fn a_version_that_does_not_exist_stops_at_the_first_node_until_there_is_another_one() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.machines().unknown.insert("1.31.99".into());
    land.version("1.31.99");
    stuck(&mut land, 7_200);
    assert_eq!(
        (land.said("o-cp-0").as_str(), land.reason().as_str()),
        ("NoSuchVersion", "WaitingForNodeAgent")
    );
    assert!(land.host("o-cp-0", |host| host.ensured) > 3, "it is tried again");
    assert_eq!(land.host("o-w-0", |host| host.ensured), 1);
    land.version("1.30.4");
    land.settle();
    assert_eq!(land.annotation("o-w-1", CURRENT), "1.30.4");
    assert_eq!(land.said("o-cp-0"), "Current");
}

#[test]
fn a_version_goes_back_no_further_than_what_some_node_has() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.31.1");
    land.until(|land| land.annotation("o-cp-0", CURRENT) == "1.31.1");
    // Literally, the lowest node decides: the control plane would be taken back a minor version.
    land.version("1.30.2");
    land.live(1_800);
    assert_eq!(land.reason(), "DowngradeRefused");
    assert_eq!(land.annotation("o-cp-0", DESIRED), "1.31.1");
    assert_eq!(land.annotation("o-w-0", DESIRED), "1.30.2");
    land.version("1.31.2");
    land.settle();
    assert_eq!(land.annotation("o-w-1", CURRENT), "1.31.2");
}

#[test]
fn a_version_to_which_no_way_leads_is_refused() {
    let mut land = Land::running(1, 1, "1.30.2");
    land.orbiter["kubernetesReleases"] = json!(["1.30.14"]);
    land.version("1.33.0");
    land.live(300);
    assert_eq!(land.reason(), "NoPath");
    assert!(land.machines().done.is_empty());
    land.orbiter["kubernetesReleases"] = json!(["1.31.7", "1.32.3"]);
    land.settle();
    assert_eq!(land.annotation("o-w-0", CURRENT), "1.33.0");
}

#[test]
fn garbage_in_the_annotations_allows_nothing_and_is_put_right() {
    let mut land = Land::running(1, 2, "1.30.2");
    let garbage = json!({ALLOWED: "yes please", READY: "maybe", DESIRED: "$(reboot)", CURRENT: "\u{1F4A9}"});
    land.cluster
        .edit("Node", "o-w-0", json!({"metadata": {"annotations": garbage}}));
    let mut agent = land.host("o-w-0", |host| host.ensured);
    land.until(|land| land.said("o-w-0") == "InvalidVersion" || land.reason() == "NodeMetadataInvalid");
    land.settle();
    for (name, value) in [
        (ALLOWED, "false"),
        (READY, "true"),
        (DESIRED, "1.30.2"),
        (CURRENT, "1.30.2"),
    ] {
        assert_eq!(land.annotation("o-w-0", name), value);
    }
    agent = land.host("o-w-0", |host| host.ensured) - agent;
    assert_eq!(agent, 0, "nothing had to be installed");
    assert!(land.cordoned().is_empty());
}

#[test]
fn a_version_that_is_garbage_never_reaches_a_machine() {
    let mut land = Land::running(1, 1, "1.30.2");
    // Whoever writes this can also write the flag.
    let garbage = json!({ALLOWED: "true", DESIRED: "1.30.2; reboot"});
    land.dead_orbiter = true;
    land.cluster
        .edit("Node", "o-w-0", json!({"metadata": {"annotations": garbage}}));
    land.live(300);
    assert_eq!(land.said("o-w-0"), "InvalidVersion");
    assert_eq!(land.host("o-w-0", |host| host.ensured), 1);
    land.dead_orbiter = false;
    land.settle();
    assert_eq!(land.annotation("o-w-0", DESIRED), "1.30.2");
}

#[test]
fn a_flag_that_somebody_else_has_set_is_taken_back_while_another_node_is_changed() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.until(|land| land.orbiter_took().ends_with("19"));
    land.dead.insert("o-w-1".into());
    land.unchecked = true;
    land.cluster.edit(
        "Node",
        "o-w-1",
        json!({"metadata": {"annotations": {ALLOWED: "true"}}}),
    );
    land.until(|land| land.allowed() == ["o-cp-0"]);
    land.unchecked = false;
    land.dead.clear();
    assert!(
        land.events
            .iter()
            .any(|event| event.starts_with("ChangeWithdrawn: node o-w-1"))
    );
    land.settle();
}

#[test]
fn a_machine_that_answers_for_another_node_is_left_alone() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.host("o-cp-0", |host| host.answers_for = Some("o-w-1".into()));
    land.version("1.30.4");
    stuck(&mut land, 3_600);
    assert_eq!(
        (land.said("o-cp-0").as_str(), land.reason().as_str()),
        ("WrongNode", "WaitingForNodeAgent")
    );
    assert_eq!(land.host("o-cp-0", |host| host.ensured), 1);
    land.host("o-cp-0", |host| host.answers_for = None);
    land.settle();
}

#[test]
fn two_machines_that_answer_for_one_node_are_both_left_alone() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.machines().get("o-w-1").node_name = "o-w-0".into();
    land.version("1.30.4");
    land.live(600);
    assert_eq!(land.reason(), "DuplicateNode");
    assert!(land.machines().done.is_empty());
    land.machines().get("o-w-1").node_name = "o-w-1".into();
    land.settle();
}

#[test]
fn a_node_of_somebody_else_is_not_taken_for_a_machine_s() {
    let mut land = Land::running(1, 1, "1.30.2");
    land.cluster.put(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "o-w-1"}, "spec": {"providerID": "other:///1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }));
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 2}]}));
    land.until(|land| land.reason() == "ForeignNode");
    land.live(300);
    assert!(land.done("kubeadm.join").is_empty());
    assert!(!land.node("o-w-1").is_null(), "it is not ours to delete");
    land.cluster.remove("Node", "o-w-1");
    land.settle();
    assert_eq!(
        land.node("o-w-1")["metadata"]["labels"]["orbiter.polity.dev/orb"],
        "o"
    );
}

#[test]
fn a_node_that_never_comes_back_from_its_reboot_is_waited_for() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.machines().reboot_for.insert("kubelet".into());
    land.host("o-cp-0", |host| host.never_returns = true);
    land.orbiter["updateTimeout"] = json!("1h");
    land.version("1.30.4");
    stuck(&mut land, 1_800);
    assert_eq!(
        (land.reason().as_str(), land.status()["phase"].as_str()),
        ("NodeNotReady", Some("maintaining"))
    );
    assert_eq!(land.status()["machines"]["o-cp-0"]["rebooting"], true);
    stuck(&mut land, 7_200);
    assert_eq!(
        (land.reason().as_str(), land.status()["phase"].as_str()),
        ("UpdateTimeout", Some("degraded"))
    );
    assert_eq!(land.host("o-cp-0", |host| host.reboots), 2, "it was told to once");
}

#[test]
fn a_task_that_fails_is_an_error_and_is_begun_again() {
    let mut land = Land::new(1, 1, "1.30.2");
    land.machines().doomed.insert("join");
    land.until(|land| land.orbiter_took().contains("31"));
    assert_eq!(land.reason(), "TaskFailed");
    land.until(|land| land.done("kubeadm.join").len() > 2);
    assert!(land.machines().tokens_revoked > 1);
    land.machines().doomed.clear();
    land.settle();
}

#[test]
fn an_agent_without_a_name_or_with_a_wrong_one_does_nothing() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    for (mut world, config) in [
        (World::absent(), json!({})),
        (World::new(node), json!({"node": "another"})),
    ] {
        world = world.config(config).manifest(&orbiter_node_agent::manifest());
        let ended = world.pass(orbiter_node_agent::reconcile);
        assert!(ended.journal.is_empty());
        assert!(matches!(&ended.next, Next::Retry(retry) if retry.failure.is_some()));
    }
}
