//! The scenarios of the specification, (g) 1 to 16: orbiter and its agents together. What always holds the land checks
//! after every pass: at most one node is changed, may be changed, or is cordoned for it.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod land;

use land::{ALLOWED, Land, Who};
use serde_json::json;

#[test]
fn scenario_01_a_control_plane_and_two_workers_come_to_be() {
    let mut land = Land::new(1, 2, "1.30.2");
    land.settle();
    assert_eq!(land.orbiter_took(), "03 05 08 09a 30 09b 30 13 14 15n 28");
    for node in ["o-cp-0", "o-w-0", "o-w-1"] {
        let took = land.agent_took(node);
        assert!(took.starts_with("06 32 07 10"), "{node}: {took}");
        assert_eq!(land.host(node, |host| (host.reboots, host.ensured)), (1, 1));
        assert_eq!(
            land.annotation(node, "alpha.kubelet.caos.ch/desired-version"),
            "1.30.2"
        );
        assert_eq!(
            land.annotation(node, "alpha.containerd.caos.ch/current-version"),
            "1.7.1"
        );
    }
    assert_eq!(land.done("kubeadm.init").len(), 1);
    assert_eq!(land.done("kubeadm.join").len(), 2);
    assert_eq!(land.machines().tokens_revoked, 2);
    assert_eq!(land.status()["phase"], "running");
    assert_eq!(land.status()["machines"]["o-w-1"]["ready"], true);
}

#[test]
fn scenario_02_where_all_is_as_it_should_be_nothing_is_done() {
    let mut land = Land::running(1, 2, "1.30.2");
    let before = land.cluster.all().to_vec();
    land.live(300);
    assert_eq!(land.orbiter_took(), "13 14 15n 28");
    assert_eq!(land.agent_took("o-w-0"), "11 12");
    assert!(land.machines().done.is_empty());
    assert_eq!(*land.cluster.all(), before[..], "nothing was written");
}

#[test]
fn scenario_03_new_workers_join_and_the_old_ones_go_on() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 4}]}));
    land.until(|land| {
        assert!(land.cordoned().is_empty());
        land.is_settled() && land.names().len() == 5
    });
    assert_eq!(land.orbiter_took(), "03 05 08 09b 30 13 14 15n 28");
    assert_eq!(land.agent_took("o-w-3").split(" 11").next(), Some("06 32 07 10"));
    assert!(
        land.done("agent.install")
            .iter()
            .all(|done| !done.contains("\"m-2\"") && !done.contains("\"m-3\""))
    );
}

#[test]
fn scenario_04_the_two_highest_workers_leave_after_a_drain() {
    let mut land = Land::running(1, 4, "1.30.2");
    for node in ["o-w-2", "o-w-3"] {
        land.pod(&format!("pod-of-{node}"), node);
    }
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 2}]}));
    land.until(|land| land.is_settled() && land.names().len() == 3);
    assert_eq!(land.names(), ["o-cp-0", "o-w-0", "o-w-1"]);
    assert_eq!(land.orbiter_took(), "34 04 34 04 13 14 15n 28");
    let done = land.done("");
    let nth = |begin: &str| done.iter().position(|done| done.starts_with(begin)).unwrap();
    let order = [
        nth("patch Node o-w-3"),
        nth("evict pod-of-o-w-3"),
        nth("pool.remove-machine {\"machine\":\"m-5\"}"),
        nth("delete Node o-w-3"),
        nth("patch Node o-w-2"),
        nth("evict pod-of-o-w-2"),
        nth("pool.remove-machine {\"machine\":\"m-4\"}"),
        nth("delete Node o-w-2"),
    ];
    assert!(order.is_sorted(), "{order:?} {done:#?}");
    assert!(land.node("o-w-3").is_null() && land.node("o-w-2").is_null());
}

#[test]
fn scenario_05_a_drain_that_a_budget_blocks_keeps_the_machine_and_every_other_node() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.pod("web", "o-w-1");
    land.budget("web", 0);
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 1}], "versions": {"kubernetes": "1.30.4"}}));
    land.live(600);
    assert_eq!(land.reason(), "DrainRefused");
    assert_eq!(land.cordoned(), ["o-w-1"]);
    assert_eq!(land.names().len(), 3);
    assert!(land.orbiter_took().ends_with("34"), "{}", land.orbiter_took());
    assert!(
        !land.orbiter_took().contains("13"),
        "no version was looked at, let alone changed"
    );
    // A machine that is missing comes all the same.
    let replaced = json!({"nodes": 3, "provider": "static", "pool": "cp"});
    land.spec(json!({"controlPlane": replaced}));
    land.live(600);
    assert_eq!(land.names(), ["o-cp-0", "o-w-0", "o-w-1", "o-cp-1", "o-cp-2"]);
    assert!(!land.node("o-cp-2").is_null(), "it has joined");
    assert_eq!(
        (land.reason(), land.cordoned()),
        ("DrainRefused".to_owned(), vec!["o-w-1".to_owned()])
    );
    land.budget("web", 1);
    land.settle();
    assert_eq!(land.names(), ["o-cp-0", "o-w-0", "o-cp-1", "o-cp-2"]);
}

#[test]
fn scenario_06_one_machine_that_is_never_prepared_lets_all_wait() {
    let mut land = Land::new(1, 2, "1.30.2");
    land.until(|land| land.names().len() == 3);
    land.machines().get("o-w-1").broken = true;
    land.live(3_600);
    assert_eq!(land.reason(), "WaitingForMachines");
    assert!(land.orbiter_took().ends_with("08"));
    assert!(land.done("kubeadm.").is_empty(), "nobody joined");
    land.machines().get("o-w-1").broken = false;
    land.settle();
}

#[test]
fn scenario_07_a_patch_is_rolled_out_one_node_after_the_other() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.settle();
    let one = "13 14 15 16 17 18 19 16 17 24 16 17 22 23 13 14 27";
    assert_eq!(
        land.orbiter_took(),
        format!("13 14 {one} 13 14 15n {one} 13 14 15n {one} 13 14 15n 28")
    );
    for node in ["o-cp-0", "o-w-0", "o-w-1"] {
        let took = land.agent_took(node);
        assert!(took.contains("20 21a 21b 26 11 12"), "{node}: {took}");
        assert_eq!(
            land.annotation(node, "alpha.kubelet.caos.ch/current-version"),
            "1.30.4"
        );
        assert_eq!(land.annotation(node, ALLOWED), "false");
        assert_eq!(land.host(node, |host| (host.reboots, host.ensured)), (1, 2));
    }
    assert!(land.cordoned().is_empty() && land.marked().is_empty());
    let order: Vec<String> = land
        .done("node.ensure")
        .iter()
        .map(|done| done[20..26].to_owned())
        .collect();
    assert_eq!(order.len(), 3);
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn scenario_08_two_minor_versions_are_two_rounds() {
    let mut land = Land::running(1, 2, "1.28.3");
    land.version("1.30.2");
    let mut seen = Vec::new();
    land.until(|land| !land.status()["changing"].is_null());
    while !land.is_settled() {
        land.step();
        let of = |node: &&str| land.annotation(node, "alpha.kubelet.caos.ch/current-version");
        let all: Vec<String> = ["o-cp-0", "o-w-0", "o-w-1"].iter().map(of).collect();
        if seen.last() != Some(&all) {
            seen.push(all);
        }
    }
    assert_eq!(
        seen,
        [
            ["1.28.3", "1.28.3", "1.28.3"],
            ["1.29.15", "1.28.3", "1.28.3"],
            ["1.29.15", "1.29.15", "1.28.3"],
            ["1.29.15", "1.29.15", "1.29.15"],
            ["1.30.2", "1.29.15", "1.29.15"],
            ["1.30.2", "1.30.2", "1.29.15"],
            ["1.30.2", "1.30.2", "1.30.2"],
        ]
    );
}

#[test]
fn scenario_09_nothing_goes_back_to_an_earlier_minor_version() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.29.15");
    land.live(900);
    assert_eq!(
        (land.reason().as_str(), land.status()["phase"].as_str()),
        ("DowngradeRefused", Some("degraded"))
    );
    assert!(land.machines().done.is_empty(), "{:?}", land.machines().done);
    land.version("1.30.1");
    land.settle();
    assert_eq!(
        land.annotation("o-w-1", "alpha.kubelet.caos.ch/current-version"),
        "1.30.1"
    );
}

/// A land in which orbiter crashes right after this act, before it could publish anything.
fn crashed_after(act: &str) -> Land {
    let upgrade = || {
        let land = Land::running(1, 2, "1.30.2");
        land.pod("web", "o-cp-0");
        land.version("1.30.4");
        land
    };
    let mut rehearsal = upgrade();
    let mut nth = 0;
    while rehearsal.done(act).is_empty() {
        // Each act is an output, and so is each publication: that of the act's own pass comes last.
        rehearsal.step();
        nth = rehearsal.outputs(&Who::Orbiter).saturating_sub(1);
    }
    let mut land = upgrade();
    land.crash = Some((Who::Orbiter, nth));
    land.until(|land| land.story.iter().any(|(_, told)| told == "crash"));
    assert_eq!(land.done(act).len(), 1);
    land.story.clear();
    land
}

#[test]
fn scenario_10_after_a_crash_behind_the_write_the_same_node_is_gone_on_with_and_not_drained_again() {
    let mut land = crashed_after(r#"patch Node o-cp-0 {"metadata":{"annotations":{"alpha.containerd"#);
    land.machines().done.clear();
    land.until(|land| land.orbiter_took().contains("23"));
    assert_eq!(land.orbiter_took(), "16 17 24 16 17 22 23");
    assert_eq!(land.status()["changing"]["node"], "o-cp-0");
    assert_eq!(land.done("patch Node o-cp-0").len(), 1, "the one that ends it");
    land.settle();
}

#[test]
fn scenario_11_after_a_crash_behind_the_flag_the_drain_comes_next() {
    let mut land = crashed_after(r#"patch Node o-cp-0 {"metadata":{"annotations":{"alpha.node"#);
    assert_eq!(land.allowed(), ["o-cp-0"]);
    land.until(|land| land.orbiter_took().contains("19"));
    assert_eq!(land.orbiter_took(), "16 17 18 16 17 18 19");
    assert_eq!(land.done("evict web").len(), 1);
    land.settle();
}

#[test]
fn scenario_12_an_agent_that_crashes_while_it_installs_is_waited_for() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.until(|land| land.done("node.ensure").len() == 2);
    land.dead.insert("o-w-0".into());
    land.story.clear();
    land.live(600);
    assert_eq!(land.annotation("o-w-0", "alpha.node.caos.ch/ready"), "false");
    assert_eq!(land.orbiter_took(), "16 17 24");
    land.dead.clear();
    land.settle();
    assert!(
        land.agent_took("o-w-0").starts_with("21b 26"),
        "{}",
        land.agent_took("o-w-0")
    );
    assert_eq!(land.host("o-w-0", |host| host.ensured), 2);
}

#[test]
fn scenario_13_a_reboot_is_waited_for() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.machines().reboot_for.insert("kubelet".into());
    land.version("1.30.4");
    let mut away = 0;
    while !land.is_settled() || land.orbiter_took().is_empty() {
        let (who, ended) = land.step();
        let changing = land.status()["changing"]["node"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let ready = land.node(&changing)["status"]["conditions"][0]["status"].clone();
        if who == Who::Orbiter && ready == "Unknown" {
            assert_eq!(ended.notes[2..], ["ORB-16", "ORB-17", "ORB-24"]);
            away += 1;
        }
    }
    assert!(away > 0);
    for node in ["o-cp-0", "o-w-0", "o-w-1"] {
        let took = land.agent_took(node);
        assert!(took.contains("20 21a 21b 25 32 26"), "{node}: {took}");
        assert_eq!(
            land.host(node, |host| host.reboots),
            2,
            "one to be prepared, one for the change"
        );
    }
}

#[test]
fn scenario_14_another_version_in_the_middle_goes_to_the_same_node_first() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.version("1.30.4");
    land.until(|land| land.done("node.ensure").len() == 2);
    assert_eq!(land.allowed(), ["o-w-0"]);
    land.version("1.30.5");
    land.story.clear();
    land.until(|land| land.orbiter_took().contains("23"));
    assert_eq!(land.orbiter_took(), "16 17 18 19 16 17 24 16 17 22 23");
    assert_eq!(
        land.annotation("o-w-0", "alpha.kubelet.caos.ch/current-version"),
        "1.30.5"
    );
    land.settle();
    for node in ["o-cp-0", "o-w-1"] {
        assert_eq!(
            land.annotation(node, "alpha.kubelet.caos.ch/current-version"),
            "1.30.5"
        );
    }
    assert_eq!(
        land.host("o-w-1", |host| host.ensured),
        2,
        "it never saw the one in between"
    );
}

#[test]
fn scenario_15_while_nodes_cannot_be_seen_nothing_is_removed() {
    use polity_sdk::cloud::pool;
    use polity_sdk::test::World;
    use polity_sdk::{Code, Failure};
    let land = Land::running(1, 2, "1.30.2");
    let machines: Vec<_> = land.machines().all.iter().map(land::Machine::describe).collect();
    for surplus in [2, 1] {
        let mut orb = land.orb();
        orb["spec"]["workers"][0]["nodes"] = surplus.into();
        let mut world = World::new(orb).manifest(&orbiter::manifest());
        let pools = json!({"pools": [{"pool": "cp"}, {"pool": "w"}]});
        world
            .answers(pool::list(), pools)
            .answers(pool::machines(), json!({"machines": machines}));
        world.responds(move |request| {
            let line = polity_sdk::test::describe(request);
            line.starts_with("list Node")
                .then(|| Err(Failure::new(Code::Unavailable, "no watch")))
        });
        let ended = world.pass(orbiter::reconcile);
        assert_eq!(ended.notes, ["ORB-01", "ORB-02"]);
        assert_eq!(ended.acts(), [""; 0]);
        assert_eq!(world.status()["conditions"][0]["reason"], "NodesUnknown");
    }
}

#[test]
fn scenario_16_a_node_without_a_machine_is_an_error_while_it_is_ready_and_then_goes() {
    let mut land = Land::running(1, 2, "1.30.2");
    land.machines().all.retain(|machine| machine.name != "o-w-1");
    land.spec(json!({"workers": [{"provider": "static", "pool": "w", "nodes": 1}]}));
    land.dead.insert("o-w-1".into());
    land.live(120);
    assert_eq!(land.reason(), "NodeWithoutMachine");
    assert!(!land.node("o-w-1").is_null());
    land.cluster.edit(
        "Node",
        "o-w-1",
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    );
    land.settle();
    assert!(land.node("o-w-1").is_null());
    assert_eq!(land.names(), ["o-cp-0", "o-w-0"]);
}
