//! What the drawing leaves out, (d4) of the specification, and what people expect of an Orb: machines that are to be
//! replaced, pools that are left alone, agents of another release, and the end.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod land;

use land::Land;
use serde_json::json;

const CURRENT: &str = "alpha.kubelet.caos.ch/current-version";

#[test]
fn a_machine_that_is_to_be_replaced_leaves_when_another_one_has_joined() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.machines().get("o-w-0").replacement_required = true;
    land.until(|land| {
        assert!(!land.node("o-w-0").is_null() || !land.node("o-w-2").is_null());
        land.is_settled() && land.names() == ["o-cp-0", "o-w-1", "o-w-2"]
    });
    assert_eq!(land.orbiter_took(), "03 05 08 09b 30 34 04 13 14 15n 28");
    let mut land = Land::running(1, 2, "1.30.2");
    land.orbiter["replaceMachines"] = false.into();
    land.machines().get("o-w-0").replacement_required = true;
    land.live(600);
    assert_eq!(land.names().len(), 3);
}

#[test]
fn the_change_of_a_node_whose_machine_is_to_be_replaced_is_given_up() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.until(|land| land.allowed() == ["o-w-0"]);
    land.dead.insert("o-w-0".into());
    land.live(600);
    land.machines().get("o-w-0").replacement_required = true;
    land.settle();
    assert_eq!(land.names(), ["o-cp-0", "o-w-1", "o-w-2"]);
    assert_eq!(land.annotation("o-w-1", CURRENT), "1.30.4");
}

#[test]
fn the_change_of_a_node_that_is_gone_is_over() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.until(|land| land.allowed() == ["o-w-0"]);
    land.dead.insert("o-w-0".into());
    land.machines().all.retain(|machine| machine.name != "o-w-0");
    land.cluster.remove("Node", "o-w-0");
    land.until(|land| land.names().len() == 3);
    land.dead.clear();
    land.settle();
    for node in ["o-cp-0", "o-w-0", "o-w-1"] {
        assert_eq!(land.annotation(node, CURRENT), "1.30.4");
    }
}

#[test]
fn a_node_whose_machine_is_gone_may_not_change_any_more_before_another_one_may() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.until(|land| land.allowed() == ["o-w-0"]);
    land.dead.insert("o-w-0".into());
    land.machines().all.retain(|machine| machine.name != "o-w-0");
    land.until(|land| land.allowed().is_empty());
    land.live(300);
    assert_eq!(land.reason(), "NodeWithoutMachine");
    assert_eq!(land.host("o-w-1", |host| host.ensured), 1);
    land.cluster.remove("Node", "o-w-0");
    land.until(|land| land.names().len() == 3);
    land.dead.clear();
    land.settle();
}

#[test]
fn no_version_is_changed_in_a_pool_that_is_left_alone() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.spec(json!({
        "workers": [{"provider": "static", "pool": "w", "nodes": 2, "updatesDisabled": true}],
        "versions": {"kubernetes": "1.30.4"},
    }));
    land.settle();
    assert_eq!(land.annotation("o-cp-0", CURRENT), "1.30.4");
    assert_eq!(land.annotation("o-w-0", CURRENT), "1.30.2");
    assert_eq!(land.host("o-w-0", |host| host.ensured), 1);
}

#[test]
fn agents_of_another_release_are_installed_anew_first() {
    let mut land = Land::running(1, 1, "1.30.2");
    land.orbiter["agentRelease"] = "2".into();
    land.settle();
    assert_eq!(land.done("agent.install").len(), 2);
    assert_eq!(land.machines().get("o-w-0").release.as_deref(), Some("2"));
    assert_eq!(land.host("o-w-0", |host| (host.reboots, host.ensured)), (1, 1));
}

#[test]
fn a_new_node_is_never_newer_than_the_control_plane() {
    let mut land = Land::running(3, 1, "1.28.3");
    land.version("1.29.1");
    land.until(|land| land.annotation("o-cp-0", CURRENT) == "1.29.1");
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 2}]}));
    land.until(|land| !land.done("agent.install").is_empty());
    assert!(
        land.done("agent.install")[0].contains("\"kubelet\":\"1.28.3\""),
        "{:?}",
        land.done("agent.install")
    );
    land.settle();
    assert_eq!(land.annotation("o-w-1", CURRENT), "1.29.1");
}

#[test]
fn a_scale_down_that_is_taken_back_uncordons_its_node() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.pod("web", "o-w-1");
    land.budget("web", 0);
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 1}]}));
    land.until(|land| land.reason() == "DrainRefused");
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 2}]}));
    land.settle();
    assert!(land.cordoned().is_empty() && land.marked().is_empty());
}

#[test]
fn while_a_node_is_changed_no_other_one_leaves() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.until(|land| land.done("node.ensure").len() == 2);
    assert_eq!(land.allowed(), ["o-w-0"]);
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 1}]}));
    // The land checks that never two nodes are touched.
    land.settle();
    assert_eq!(land.names(), ["o-cp-0", "o-w-0"]);
}

#[test]
fn an_orb_that_is_deleted_takes_its_machines_with_it() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.delete();
    land.until(|land| land.orb().is_null());
    assert!(land.names().is_empty());
    let removals = land.done("pool.remove-machine");
    assert_eq!(removals.len(), 3);
    assert!(
        removals[2].contains("m-1"),
        "the control plane last: {removals:?}"
    );
    assert!(land.cluster.all().iter().all(|object| object["kind"] != "Node"));
}

#[test]
fn an_orb_that_is_deleted_while_a_machine_may_have_been_added_waits() {
    let mut land = Land::new(1, 1, "1.30.2");
    // The first output makes the pools.
    land.crash = Some((land::Who::Orbiter, 2));
    land.until(|land| land.story.iter().any(|(_, told)| told == "crash"));
    land.in_the_dark = 3;
    land.delete();
    land.until(|land| land.orb().is_null());
    assert!(
        land.orbiter_took().starts_with("29 33"),
        "{}",
        land.orbiter_took()
    );
    assert!(land.names().is_empty());
}

#[test]
fn tasks_whose_records_have_expired_are_told_by_what_there_is() {
    let mut land = Land::new(1, 1, "1.30.2");
    for kind in ["agent.install", "kubeadm.init", "kubeadm.join"] {
        land.until(|land| !land.done(kind).is_empty());
        land.live(60);
        land.machines().forget_tasks();
    }
    land.settle();
    assert_eq!(land.done("kubeadm.init").len(), 1);
    let mut land = Land::running(1, 2, "1.30.2");
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 1}]}));
    land.until(|land| land.names().len() == 2);
    land.machines().forget_tasks();
    land.settle();
    assert!(land.node("o-w-1").is_null());
}
