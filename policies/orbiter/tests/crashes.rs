//! Whoever crashes, and after whichever output: at most one node is changed at any time, none is rebooted twice for one
//! change, no machine is added twice, and in the end everything is as it should be. The land checks the first after
//! every pass.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod land;

use std::collections::BTreeSet;

use land::{Land, Who};
use serde_json::json;

const NODES: [&str; 2] = ["o-cp-0", "o-w-0"];

/// An upgrade with a reboot, of nodes that have pods.
fn upgrade() -> Land {
    let land = Land::running(1, 1, "1.30.2");
    land.machines().reboot_for.insert("kubelet".into());
    land.pod("web", "o-w-0");
    land.pod("db", "o-cp-0");
    land.version("1.30.4");
    land
}

fn is_upgraded(land: &Land) {
    for node in NODES {
        assert_eq!(
            land.annotation(node, "alpha.kubelet.caos.ch/current-version"),
            "1.30.4"
        );
        assert_eq!(land.annotation(node, "alpha.node.caos.ch/ready"), "true");
        assert_eq!(
            land.host(node, |host| host.reboots),
            2,
            "{node}: one to be prepared, one for the change"
        );
        assert_eq!(land.host(node, |host| host.ensured), 2, "{node}");
    }
    assert_eq!(land.done("evict").len(), 2, "{:?}", land.done("evict"));
    assert!(land.cordoned().is_empty() && land.marked().is_empty() && land.allowed().is_empty());
}

/// How many outputs each makes until all is settled.
fn outputs(begin: impl Fn() -> Land) -> Vec<(Who, u32)> {
    let mut land = begin();
    land.settle();
    let agents = NODES.map(|node| Who::Agent(node.to_owned()));
    let all = agents.into_iter().chain([Who::Orbiter]);
    all.map(|who| (who.clone(), land.outputs(&who))).collect()
}

/// Runs once for each output that anybody makes.
fn at_every_output(begin: impl Fn() -> Land, disturb: impl Fn(&mut Land, (Who, u32)), check: impl Fn(&Land)) {
    let all = outputs(&begin);
    assert!(all.iter().all(|(_, outputs)| *outputs > 3), "{all:?}");
    for (who, outputs) in all {
        for nth in 1..=outputs {
            let mut land = begin();
            disturb(&mut land, (who.clone(), nth));
            land.settle();
            assert!(
                land.crash.is_none() && land.lose.is_none(),
                "{who:?} made no output {nth}"
            );
            check(&land);
        }
    }
}

#[test]
fn an_upgrade_survives_a_crash_after_every_output_of_everybody() {
    at_every_output(upgrade, |land, at| land.crash = Some(at), is_upgraded);
}

#[test]
fn an_upgrade_survives_the_loss_of_every_answer() {
    // Publications have no answer that a policy sees: nothing is lost of them.
    let acts = |land: &mut Land, (who, nth): (Who, u32)| {
        land.lose = Some((who, nth));
        land.lose_if_act();
    };
    at_every_output(upgrade, acts, |land| {
        for node in NODES {
            assert_eq!(
                land.annotation(node, "alpha.kubelet.caos.ch/current-version"),
                "1.30.4"
            );
            assert_eq!(land.host(node, |host| host.reboots), 2, "{node}");
        }
        assert!(land.cordoned().is_empty() && land.allowed().is_empty());
    });
}

fn bootstrap() -> Land {
    Land::new(1, 1, "1.30.2")
}

fn is_complete(land: &Land) {
    assert_eq!(land.names(), NODES);
    let ids: BTreeSet<String> = land
        .machines()
        .all
        .iter()
        .map(|machine| machine.id.clone())
        .collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(
        land.done("pool.add-machine").len(),
        2,
        "{:?}",
        land.done("pool.add-machine")
    );
    for node in NODES {
        assert_eq!(land.host(node, |host| host.reboots), 1, "{node}");
        assert_eq!(land.annotation(node, "alpha.node.caos.ch/ready"), "true");
    }
}

#[test]
fn a_new_cluster_survives_a_crash_after_every_output_of_everybody() {
    at_every_output(bootstrap, |land, at| land.crash = Some(at), is_complete);
}

#[test]
fn a_new_cluster_survives_a_crash_while_nobody_can_say_what_came_of_it() {
    let disturb = |land: &mut Land, at| {
        land.crash = Some(at);
        land.in_the_dark = 2;
    };
    at_every_output(bootstrap, disturb, is_complete);
}

#[test]
fn a_smaller_cluster_survives_a_crash_after_every_output_of_orbiter() {
    let begin = || {
        let land = Land::running(1, 3, "1.30.2");
        land.pod("web", "o-w-2");
        land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 2}]}));
        land
    };
    let mut clean = begin();
    clean.settle();
    for nth in 1..=clean.outputs(&Who::Orbiter) {
        let mut land = begin();
        land.crash = Some((Who::Orbiter, nth));
        land.settle();
        assert_eq!(land.names(), ["o-cp-0", "o-w-0", "o-w-1"]);
        assert!(land.node("o-w-2").is_null() && land.cordoned().is_empty());
        assert_eq!(land.done("evict").len(), 1);
    }
}
