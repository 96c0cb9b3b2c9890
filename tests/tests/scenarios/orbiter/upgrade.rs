//! Scenarios (g) 7 to 15: versions are changed, one node after the other, with interruptions.

use std::time::Duration;

use polity_tests::host_harness::backend::Backend;
use polity_tests::simulation::scenario::Rates;
use polity_tests::simulation::seed::Chance;
use serde_json::json;

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_07_a_patch_is_rolled_out_one_node_after_the_other,
    scenario_07_pods_that_do_not_serve_hold_no_node_back,
    scenario_08_two_minor_versions_are_two_rounds,
    scenario_09_nothing_goes_back_to_an_earlier_minor_version,
    scenario_10_after_a_crash_behind_the_write_the_same_node_is_gone_on_with_and_not_drained_again,
    scenario_11_after_a_crash_behind_the_flag_the_drain_comes_next,
    scenario_12_an_agent_that_crashes_while_it_installs_is_waited_for,
    scenario_13_a_reboot_is_waited_for,
    scenario_14_another_version_in_the_middle_goes_to_the_same_node_first,
    orb_35_the_only_node_is_cordoned_and_not_drained,
    orb_36_a_control_plane_that_is_not_to_be_drained_is_changed_as_it_is,
    orb_37_the_nodes_of_a_pool_that_is_not_updated_stay_as_they_are,
    scenario_15_while_the_api_server_is_away_nothing_is_removed,
}

/// The passes of an orbiter that changes so many nodes, none of which has pods.
fn rollout(nodes: usize) -> Vec<&'static str> {
    let begins = std::iter::once(FIRST).chain(std::iter::repeat(FURTHER));
    let nodes = begins
        .take(nodes)
        .flat_map(|begin| std::iter::once(begin).chain(ONE_NODE));
    nodes.chain([LAST]).collect()
}

async fn scenario_07_a_patch_is_rolled_out_one_node_after_the_other(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    let (done, agents) = (fixture.passes().len(), fixture.agents());
    fixture.version(NEW).await;
    fixture.settles_again().await;
    assert_eq!(fixture.told(done), rollout(3));
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
    // The first three were those of their preparation.
    assert_eq!(fixture.begun("node.ensure")[3..], names(2));
    for (node, upgrade) in [("o-cp-0", "apply"), ("o-w-0", "node"), ("o-w-1", "node")] {
        assert_eq!(fixture.annotation(node, UPGRADE).await, upgrade, "{node}");
    }
    for (node, before) in agents {
        let took = fixture.agent_took(&node, before);
        assert!(took.ends_with("20 21a 21b 26 11 12"), "{node}: {took}");
        assert_eq!(fixture.annotation(&node, ALLOWED).await, "false");
        assert_eq!(
            fixture.machine(&node).reboots,
            1,
            "to be prepared, and not for this"
        );
    }
    assert!(fixture.cordoned().await.is_empty());
}

/// By the rule of kube-apiserver (`tests/tests/evictions.rs` has it case by case).
async fn scenario_07_pods_that_do_not_serve_hold_no_node_back(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    for (name, phase) in [("new", "Pending"), ("done", "Succeeded"), ("broken", "Failed")] {
        fixture.pod(name, "o-w-0").await;
        fixture.pod_says(name, json!({"phase": phase})).await;
        fixture.budget(name, 1).await;
    }
    fixture.pod("spared", "o-w-0").await;
    let spec = json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
    fixture.budget_with("spared", spec).await;
    fixture.pod("spare", "o-w-0").await;
    fixture.pod_of("spare", "serves", "elsewhere").await;
    fixture.budget("spare", 1).await;
    for name in ["spared", "spare"] {
        fixture.pod_is(name, "False").await;
    }
    fixture.version(NEW).await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
    for name in ["new", "done", "broken", "spared", "spare"] {
        assert!(!fixture.has_pod(name).await, "{name}");
    }
    assert!(fixture.has_pod("serves").await);
}

async fn scenario_08_two_minor_versions_are_two_rounds(on: &dyn Backend) {
    let fixture = Fixture::running_at("1.28.3", on, json!({}), json!({}), 2).await;
    let done = fixture.passes().len();
    fixture.version(OLD).await;
    let mut seen = vec![fixture.kubelets().await];
    while seen.last() != Some(&vec![OLD.to_owned(); 3]) {
        fixture.sleep(Duration::from_secs(1)).await;
        let now = fixture.kubelets().await;
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert_eq!(
        seen,
        [
            ["1.28.3", "1.28.3", "1.28.3"],
            ["1.29.15", "1.28.3", "1.28.3"],
            ["1.29.15", "1.29.15", "1.28.3"],
            ["1.29.15", "1.29.15", "1.29.15"],
            [OLD, "1.29.15", "1.29.15"],
            [OLD, OLD, "1.29.15"],
            [OLD, OLD, OLD],
        ]
    );
    fixture.settles_again().await;
    // The first node is due again as soon as the last one is done: none is found to be as it should be.
    let mut rounds = rollout(6);
    rounds[15] = "13 14 27 13 14 after 1 s";
    assert_eq!(fixture.told(done)[..31], rounds);
}

async fn scenario_09_nothing_goes_back_to_an_earlier_minor_version(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    let done = fixture.passes().len();
    fixture.version("1.29.15").await;
    let orb = fixture.until_reason("DowngradeRefused").await;
    assert_eq!(orb["status"]["phase"], "degraded");
    fixture.sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.told(done), ["Short"]);
    assert!(fixture.acts_on_nodes(done).is_empty());
    // A patch may go back.
    fixture.version("1.30.1").await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, ["1.30.1"; 3]);
}

async fn scenario_10_after_a_crash_behind_the_write_the_same_node_is_gone_on_with_and_not_drained_again(
    on: &dyn Backend,
) {
    let mut fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.pod("web", "o-cp-0").await;
    fixture.version(NEW).await;
    fixture
        .crash_when_node("o-cp-0", |node| told_by(node, DESIRED) == NEW)
        .await;
    let orb = fixture.object().await;
    assert_eq!(reason(&orb), "Draining", "the write was not published");
    let done = fixture.passes().len();
    fixture
        .until_node("o-cp-0", "it is done", |node| told_by(node, ALLOWED) == "false")
        .await;
    assert_eq!(orb["status"]["changing"]["node"], "o-cp-0");
    let told = fixture.told(done);
    assert_eq!(
        told[..2],
        ["16 17 24 after 30 s", "16 17 22 23 after 1 s"],
        "{told:?}"
    );
    assert_eq!(
        fixture.acts_on_nodes(done),
        ["patch o-cp-0"],
        "the one that ends it"
    );
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn scenario_11_after_a_crash_behind_the_flag_the_drain_comes_next(on: &dyn Backend) {
    let mut fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.pod("web", "o-cp-0").await;
    fixture.version(NEW).await;
    fixture
        .crash_when_node("o-cp-0", |node| told_by(node, ALLOWED) == "true")
        .await;
    let (done, orb) = (fixture.passes().len(), fixture.object().await);
    let said = orb["status"]["conditions"][0]["message"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(said, "node o-cp-0 is changed next", "the flag was not published");
    fixture.settles_again().await;
    let told = fixture.told(done);
    assert_eq!(
        told[..4],
        [
            "16 17 18 after 5 s",
            "16 17 18 19 after 30 s",
            "16 17 24 after 30 s",
            "16 17 22 23 after 1 s"
        ]
    );
    assert_eq!(fixture.acts_on_nodes(done)[..2], ["patch o-cp-0", "evict web"]);
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn scenario_12_an_agent_that_crashes_while_it_installs_is_waited_for(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.version(NEW).await;
    let installs = |fixture: &Fixture| fixture.begun("node.ensure").len() == 5;
    fixture
        .until("the second node installs", |_| installs(&fixture))
        .await;
    fixture.kill_agent("o-w-0").await;
    let done = fixture.passes().len();
    fixture.sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.annotation("o-w-0", READY).await, "false");
    assert_eq!(fixture.annotation("o-w-0", CURRENT).await, OLD);
    assert_eq!(fixture.told(done), ["16 17 24 after 30 s"]);
    assert_eq!(reason(&fixture.object().await), "WaitingForNodeAgent");
    assert_eq!(fixture.kubelets().await, [NEW, OLD, OLD]);

    let before = fixture.agent_passes("o-w-0");
    fixture.start_agent("o-w-0").await;
    fixture.settles_again().await;
    let took = fixture.agent_took("o-w-0", before);
    assert!(took.starts_with("21b 26"), "{took}");
    // What the machine had begun was not begun again.
    assert_eq!(fixture.begun("node.ensure")[3..], names(2));
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn scenario_13_a_reboot_is_waited_for(on: &dyn Backend) {
    let overrides = json!({
        "packages": {"rebootFor": ["kubelet"]},
        "machines": {"boot": {"min": "90s", "max": "90s"}},
    });
    let fixture = Fixture::running(on, overrides, json!({}), 2).await;
    let (done, agents) = (fixture.passes().len(), fixture.agents());
    fixture.version(NEW).await;
    fixture.until_reason("NodeNotReady").await;
    let orb = fixture.object().await;
    assert_eq!(orb["status"]["machines"]["o-cp-0"]["rebooting"], true);
    fixture.settles_again().await;
    assert_eq!(fixture.told(done), rollout(3));
    for (node, before) in agents {
        let took = fixture.agent_took(&node, before);
        assert!(took.ends_with("20 21a 21b 25 32 26 11 12"), "{node}: {took}");
        assert_eq!(
            fixture.machine(&node).reboots,
            2,
            "one to be prepared, one for the change"
        );
    }
}

async fn scenario_14_another_version_in_the_middle_goes_to_the_same_node_first(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.version(NEW).await;
    fixture
        .until("the second node installs", |_| {
            fixture.begun("node.ensure").len() == 5
        })
        .await;
    let done = fixture.passes().len();
    fixture.version("1.30.5").await;
    fixture.settles_again().await;
    let told = fixture.told(done);
    assert_eq!(
        told[..4],
        [
            "16 17 18 19 after 30 s",
            "16 17 24 after 30 s",
            "16 17 22 23 after 1 s",
            "13 14 27 13 14 after 1 s",
        ]
    );
    assert_eq!(
        fixture.acts_on_nodes(done)[..2],
        ["patch o-w-0", "patch o-w-0"],
        "cordoned it was already"
    );
    assert_eq!(fixture.kubelets().await, ["1.30.5"; 3]);
    // The last node never saw the version in between, and the first one came last.
    let begun = fixture.begun("node.ensure");
    assert_eq!(begun[3..], ["o-cp-0", "o-w-0", "o-w-0", "o-cp-0", "o-w-1"]);
}

async fn orb_35_the_only_node_is_cordoned_and_not_drained(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 0).await;
    let done = fixture.passes().len();
    fixture.pod("web", "o-cp-0").await;
    fixture.version(NEW).await;
    fixture.settles_again().await;
    let told = fixture.told(done);
    assert!(told.contains(&"16 17 35 19 after 30 s".to_owned()), "{told:?}");
    assert!(fixture.has_pod("web").await);
    assert_eq!(
        (fixture.kubelets().await, fixture.cordoned().await.len()),
        (vec![NEW.to_owned()], 0)
    );
}

async fn orb_36_a_control_plane_that_is_not_to_be_drained_is_changed_as_it_is(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({"drainControlPlane": false}), 1).await;
    let done = fixture.passes().len();
    fixture.pod("web", "o-cp-0").await;
    fixture.version(NEW).await;
    fixture.settles_again().await;
    let told = fixture.told(done);
    assert!(told.contains(&"16 17 36 19 after 30 s".to_owned()), "{told:?}");
    assert!(fixture.has_pod("web").await);
    assert_eq!(fixture.kubelets().await, [NEW; 2]);
}

async fn orb_37_the_nodes_of_a_pool_that_is_not_updated_stay_as_they_are(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 1).await;
    let done = fixture.passes().len();
    let workers = json!([{"provider": "static", "pool": "w", "nodes": 1, "updatesDisabled": true}]);
    fixture
        .edit(json!({"spec": {"versions": {"kubernetes": NEW}, "workers": workers}}))
        .await;
    fixture.settles_again().await;
    let told = fixture.told(done);
    assert!(told.iter().any(|pass| pass.contains("37")), "{told:?}");
    assert_eq!(fixture.kubelets().await, [NEW, OLD]);
}

async fn scenario_15_while_the_api_server_is_away_nothing_is_removed(on: &dyn Backend) {
    let down = json!([{"from": "20m", "until": "30m"}]);
    let fixture = Fixture::running(on, json!({"apiServerDown": down}), json!({}), 2).await;
    fixture.until_second(20 * 60 - 20).await;
    fixture.version(NEW).await;
    fixture
        .until_node("o-cp-0", "it may change", |node| told_by(node, ALLOWED) == "true")
        .await;
    // Somebody has wanted one worker less, and then nobody can reach the API server, or hears of any node.
    fixture.workers(1).await;
    fixture.until_second(20 * 60).await;
    let refuses = Rates {
        refused: 1_000,
        ..NO_FAULTS
    };
    fixture.host.wire.inject(Some((refuses, Chance::new(1, 1))));
    let before = fixture.passes().len();
    fixture.until_second(25 * 60).await;
    assert!(fixture.acts_on_nodes(before).is_empty());
    // It can be reached again before any kubelet has reached it: no node is ready, and none is missing.
    fixture.host.wire.inject(None);
    fixture.until_second(29 * 60).await;
    assert_eq!(reason(&fixture.object().await), "NodeNotReady");
    assert_eq!(fixture.machines().len(), 3);
    assert!(fixture.begun("pool.remove-machine").is_empty());
    fixture
        .until("one worker is left", |_| fixture.machines().len() == 2)
        .await;
    fixture.kill_agent("o-w-1").await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 2]);
}
