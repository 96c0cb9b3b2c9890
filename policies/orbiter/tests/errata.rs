//! One test for each mistake and ambiguity of the drawing, (f) 1 to 14 of the specification: what the literal reading
//! would do, and that the policies do not.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod land;

use land::{Land, Who};
use serde_json::json;

const KUBELET: &str = "alpha.kubelet.caos.ch/current-version";

fn upgrading() -> Land {
    let land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land
}

/// Literally, a node is drained and then cordoned: its pods are replaced on the very node in between.
#[test]
fn erratum_01_a_node_is_cordoned_and_then_drained() {
    let mut land = upgrading();
    land.pod("web", "o-cp-0");
    land.until(|land| !land.done("evict web").is_empty());
    let done = land.done("");
    let cordon = done
        .iter()
        .position(|done| done.contains("\"unschedulable\":true"))
        .unwrap();
    let evict = done
        .iter()
        .position(|done| done.starts_with("evict web"))
        .unwrap();
    assert!(cordon < evict, "{done:#?}");
}

/// "Safe metadata" is what it sounds like: the agent saves it, on its Node, and nowhere else.
#[test]
fn erratum_02_metadata_is_saved() {
    let mut land = Land::new(1, 0, "1.30.2");
    land.until(|land| land.agent_took("o-cp-0").contains("10"));
    assert_eq!(land.annotation("o-cp-0", "alpha.node.caos.ch/ready"), "true");
    assert_eq!(land.annotation("o-cp-0", KUBELET), "1.30.2");
}

/// Literally, nothing leads out of the agent's loop.
#[test]
fn erratum_03_an_agent_leaves_its_loop_when_something_is_wanted() {
    let mut land = upgrading();
    land.until(|land| land.agent_took("o-cp-0").contains("26"));
    assert!(land.agent_took("o-cp-0").contains("11 12 20 21a 21b 26"));
}

/// Literally, a node that wants what it needs is drained again when orbiter comes back to it.
#[test]
fn erratum_04_a_node_that_is_on_its_way_is_waited_for_and_not_drained() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.host("o-w-0", |host| {
        host.installed.insert("kubelet".into(), "1.30.1".into())
    });
    land.pod("web", "o-w-0");
    land.until(|land| land.orbiter_took().contains("23"));
    assert!(
        land.orbiter_took().ends_with("15 16 17 24 16 17 23"),
        "{}",
        land.orbiter_took()
    );
    assert!(land.cluster.get("Pod", "web").is_some() && land.done("evict").is_empty());
    assert_eq!(land.annotation("o-w-0", KUBELET), "1.30.2");
}

/// The code drains no control plane; the drawing drains every node, also the only one, whose pods have nowhere to go.
#[test]
fn erratum_05_control_planes_are_drained_but_a_single_node_is_only_cordoned() {
    for (drains, workers, cordons, evicts) in [(true, 1, true, 1), (false, 1, false, 0), (true, 0, true, 0)] {
        let mut land = Land::running(1, workers, "1.30.2");
        land.orbiter["drainControlPlane"] = drains.into();
        land.pod("web", "o-cp-0");
        land.version("1.30.4");
        land.until(|land| land.orbiter_took().contains("19"));
        assert_eq!(!land.cordoned().is_empty(), cordons, "{drains} {workers}");
        assert_eq!(land.done("evict").len(), evicts, "{drains} {workers}");
        land.settle();
        assert!(land.cordoned().is_empty());
    }
}

/// Literally, a node is done once it is what it wants, and begins anew at once when that is no longer what it needs.
#[test]
fn erratum_06_a_node_is_not_done_before_it_is_what_it_needs() {
    let mut land = upgrading();
    land.until(|land| {
        land.annotation("o-cp-0", "alpha.node.caos.ch/ready") == "true"
            && land.annotation("o-cp-0", KUBELET) == "1.30.4"
    });
    land.version("1.30.5");
    land.story.clear();
    land.until(|land| land.orbiter_took().contains("23"));
    assert_eq!(land.orbiter_took(), "16 17 18 19 16 17 24 16 17 22 23");
    assert_eq!(land.annotation("o-cp-0", KUBELET), "1.30.5");
}

/// Between the write of what is wanted and the agent's first word the node still says that it is ready.
#[test]
fn erratum_07_a_node_is_never_done_in_between() {
    let mut land = upgrading();
    land.until(|land| land.orbiter_took().ends_with("19"));
    // The agent sleeps: ready is still true, and what is installed is not what is wanted.
    land.dead.insert("o-cp-0".into());
    assert_eq!(land.annotation("o-cp-0", "alpha.node.caos.ch/ready"), "true");
    land.live(300);
    assert!(land.orbiter_took().ends_with("16 17 24"));
    land.dead.clear();
    // And what is installed is never seen to change before ready is false.
    let mut before = land.node("o-cp-0");
    while land.annotation("o-cp-0", "alpha.node.caos.ch/ready") != "true"
        || land.annotation("o-cp-0", KUBELET) != "1.30.4"
    {
        land.step();
        let after = land.node("o-cp-0");
        let of = |node: &serde_json::Value, name: &str| node["metadata"]["annotations"][name].clone();
        if of(&before, KUBELET) != of(&after, KUBELET) {
            assert_eq!(of(&before, "alpha.node.caos.ch/ready"), "false");
        }
        before = after;
    }
}

/// A dead agent blocks the rollout for ever; whoever wants to hear of that says after how long.
#[test]
fn erratum_08_a_dead_agent_blocks_the_rollout_and_no_second_node_is_touched() {
    for (timeout, phase, reason) in [
        (json!(null), "maintaining", "WaitingForNodeAgent"),
        (json!("10m"), "degraded", "UpdateTimeout"),
    ] {
        let mut land = upgrading();
        land.orbiter["updateTimeout"] = timeout;
        land.dead.insert("o-cp-0".into());
        land.live(3_600);
        assert_eq!(
            (land.status()["phase"].as_str(), land.reason().as_str()),
            (Some(phase), reason)
        );
        assert_eq!(land.allowed(), ["o-cp-0"]);
        assert_eq!(land.cordoned(), ["o-cp-0"]);
        land.dead.clear();
        land.settle();
    }
}

/// The flag comes before the drain: an agent with something older to do begins on a node that still has its pods.
#[test]
fn erratum_09_an_agent_can_be_told_to_wait_for_the_cordon() {
    for (waits, ensured) in [(false, 2), (true, 1)] {
        let mut land = Land::running(1, 2, "1.30.2");
        land.agent["requireCordon"] = waits.into();
        land.host("o-cp-0", |host| {
            host.installed.insert("kubelet".into(), "1.30.1".into())
        });
        land.live(120);
        assert_eq!(land.host("o-cp-0", |host| host.ensured), ensured);
        assert_eq!(land.said("o-cp-0") == "WaitingForCordon", waits);
    }
}

/// Literally, orbiter uncordons what a person has cordoned.
#[test]
fn erratum_10_a_node_that_a_person_has_cordoned_stays_cordoned() {
    for (undoes, left) in [(false, 1), (true, 0)] {
        let mut land = upgrading();
        land.orbiter["uncordonForeign"] = undoes.into();
        land.cluster
            .edit("Node", "o-w-0", json!({"spec": {"unschedulable": true}}));
        land.settle();
        assert_eq!(land.annotation("o-w-0", KUBELET), "1.30.4");
        assert_eq!(land.cordoned().len(), left, "{undoes}");
        assert!(land.marked().is_empty());
    }
}

/// One machine that is not prepared lets nobody join. The drawing wins.
#[test]
fn erratum_11_nobody_joins_before_all_are_prepared() {
    let mut land = Land::new(3, 1, "1.30.2");
    land.until(|land| land.names().len() == 4);
    land.machines().get("o-cp-2").broken = true;
    land.live(1_800);
    assert!(land.done("kubeadm").is_empty());
    land.machines().get("o-cp-2").broken = false;
    land.settle();
    // And then the control planes one after the other, before the worker.
    let joins: Vec<String> = land
        .done("kubeadm")
        .iter()
        .map(|done| done.chars().skip(13).take(16).collect())
        .collect();
    assert_eq!(joins.len(), 4);
    let roles: Vec<bool> = land
        .done("kubeadm.join")
        .iter()
        .map(|done| done.contains("certificateKey"))
        .collect();
    assert_eq!(roles, [true, true, false]);
}

/// The drawing repeats the line once for each package: it is one write.
#[test]
fn erratum_12_all_packages_are_told_in_one_write() {
    let mut land = Land::running(1, 0, "1.30.2");
    land.spec(json!({"versions": {"kubernetes": "1.30.4", "containerd": "1.7.2"}}));
    land.until(|land| land.orbiter_took().ends_with("19"));
    let told: Vec<String> = land
        .done("patch Node")
        .into_iter()
        .filter(|done| done.contains("desired-version"))
        .collect();
    assert_eq!(told.len(), 1);
    for part in ["containerd", "kubeadm", "kubelet"] {
        assert!(told[0].contains(part), "{told:?}");
    }
}

/// The code waits nanoseconds where it means seconds: it deletes pods that were just told to end.
#[test]
fn erratum_13_a_pod_has_its_time_to_end_and_half_a_minute_more() {
    let mut land = upgrading();
    land.pod("web", "o-cp-0");
    land.cluster.edit(
        "Pod",
        "web",
        json!({"metadata": {"finalizers": ["example.com/slow"]}}),
    );
    land.until(|land| !land.done("evict web").is_empty());
    let evicted = land.now;
    land.until(|land| !land.done("delete Pod web").is_empty());
    assert!(
        (90_000..100_000).contains(&(land.now - evicted)),
        "{}",
        land.now - evicted
    );
    land.cluster.remove("Pod", "web");
    land.settle();
}

/// The code takes the tail of a list of ids. Who leaves is: whoever is to be replaced, then the highest number; never
/// the last control plane.
#[test]
fn erratum_14_who_leaves_is_determined() {
    let mut land = Land::running(1, 3, "1.30.2");
    land.machines().get("o-w-0").replacement_required = true;
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 2}]}));
    land.settle();
    assert_eq!(land.names(), ["o-cp-0", "o-w-1", "o-w-2"]);
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 1}]}));
    land.settle();
    assert_eq!(land.names(), ["o-cp-0", "o-w-1"]);
    // Another name for the control plane: the old one stays until the new one has joined.
    land.spec(json!({"controlPlane": {"pool": "new"}}));
    land.until(|land| {
        assert!(land.names().contains(&"o-cp-0".to_owned()) || !land.node("o-new-0").is_null());
        land.names() == ["o-w-1", "o-new-0"]
    });
    let _ = Who::Orbiter;
}
