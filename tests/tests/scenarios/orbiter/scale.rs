//! Scenarios (g) 1 to 6 and 16: machines are added, become nodes, and are removed.

use std::time::Duration;

use polity_tests::host_harness::backend::Backend;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_01_a_control_plane_and_two_workers_come_to_be,
    scenario_02_where_all_is_as_it_should_be_nothing_is_done,
    scenario_03_new_workers_join_and_the_old_ones_go_on,
    scenario_04_the_two_highest_workers_leave_after_a_drain,
    scenario_05_a_drain_that_a_budget_blocks_keeps_the_machine_and_every_other_node,
    scenario_06_one_machine_that_is_never_prepared_lets_all_wait,
    scenario_16_a_node_without_a_machine_is_an_error_while_it_is_ready_and_then_goes,
    orb_29_an_addition_in_doubt_adds_no_second_machine,
    orb_33_an_orb_that_is_deleted_takes_its_machines_along,
    orb_31_a_machine_that_could_not_join_joins_with_another_token,
}

async fn scenario_01_a_control_plane_and_two_workers_come_to_be(on: &dyn Backend) {
    let fixture = Fixture::begin(on, json!({}), json!({}), 2).await;
    fixture.create(&orb(2, OLD)).await;
    let orb = fixture.until_fine().await;
    fixture.settles().await;
    assert_eq!(
        fixture.told(0),
        [
            "03 03 03 after 30 s",
            "05 05 05 after 30 s",
            "08 after 30 s",
            "09a after 30 s",
            "30 after 30 s",
            "09b 09b after 30 s",
            "30 after 30 s",
            FINE,
        ]
    );
    assert_eq!(orb["status"]["phase"], "running");
    assert_eq!(orb["status"]["initialized"], "o-cp-0");
    assert_eq!(fixture.begun("kubeadm.init"), ["o-cp-0"]);
    assert_eq!(fixture.begun("kubeadm.join"), ["o-w-0", "o-w-1"]);
    for machine in fixture.machines() {
        let took = fixture.agent_took(&machine.node, 0);
        assert!(took.starts_with("06 32 07 10"), "{took}");
        assert_eq!(machine.reboots, 1, "{}", machine.name);
        assert_eq!(machine.installed["kubelet"], OLD);
        assert_eq!(fixture.annotation(&machine.node, CURRENT).await, OLD);
        assert_eq!(fixture.annotation(&machine.node, READY).await, "true");
        assert_eq!(orb["status"]["machines"][&machine.name]["ready"], true);
    }
}

async fn scenario_02_where_all_is_as_it_should_be_nothing_is_done(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.settles().await;
    fixture.sleep(Duration::from_secs(60)).await;
    let (done, agent) = (fixture.passes().len(), fixture.agent_passes("o-w-0"));
    let (effects, orb) = (fixture.site.effects(), fixture.object().await);
    let nodes = fixture.site.list("v1", "Node").await;
    fixture.sleep(Duration::from_secs(300)).await;
    assert_eq!(fixture.told(done), [FINE]);
    assert_eq!(fixture.agent_told("o-w-0", agent), ["11 12 settled"]);
    assert!(fixture.passes().len() >= done + 9 && fixture.agent_passes("o-w-0") >= agent + 28);
    assert_eq!(fixture.site.effects(), effects);
    assert_eq!(fixture.object().await, orb);
    assert_eq!(fixture.site.list("v1", "Node").await, nodes);
}

async fn scenario_03_new_workers_join_and_the_old_ones_go_on(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    let (done, agent) = (fixture.passes().len(), fixture.agent_passes("o-w-0"));
    for node in ["o-w-2", "o-w-3"] {
        fixture.start_agent(node).await;
    }
    fixture.workers(4).await;
    fixture.settles_again().await;
    assert_eq!(
        fixture.told(done),
        [
            "03 03 after 30 s",
            "05 05 after 30 s",
            "08 after 30 s",
            "09b 09b after 30 s",
            "30 after 30 s",
            FINE,
        ]
    );
    assert_eq!(fixture.begun("agent.install"), names(4));
    assert_eq!(fixture.begun("kubeadm.join"), names(4)[1..]);
    assert_eq!(fixture.agent_told("o-w-0", agent), ["11 12 settled"]);
    assert_eq!(fixture.acts_on_nodes(done), ["pool.add-machine"; 2]);
    assert!(fixture.agent_took("o-w-3", 0).starts_with("06 32 07 10"));
}

async fn scenario_04_the_two_highest_workers_leave_after_a_drain(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 4).await;
    let done = fixture.passes().len();
    for node in ["o-w-0", "o-w-2", "o-w-3"] {
        fixture.pod(&format!("pod-of-{node}"), node).await;
    }
    fixture.workers(2).await;
    fixture
        .until("two workers are left", |_| fixture.machines().len() == 3)
        .await;
    fixture.until_fine().await;
    assert_eq!(
        fixture.told(done),
        [
            "34 after 5 s",
            "34 04 after 30 s",
            "34 after 5 s",
            "34 04 after 30 s",
            FINE,
        ]
    );
    assert_eq!(
        fixture.acts_on_nodes(done),
        [
            "patch o-w-3",
            "evict pod-of-o-w-3",
            "pool.remove-machine",
            "delete o-w-3",
            "patch o-w-2",
            "evict pod-of-o-w-2",
            "pool.remove-machine",
            "delete o-w-2",
        ]
    );
    assert_eq!(fixture.begun("pool.remove-machine"), ["o-w-3", "o-w-2"]);
    assert!(fixture.node("o-w-3").await.is_null() && fixture.node("o-w-2").await.is_null());
    assert!(fixture.has_pod("pod-of-o-w-0").await);
}

async fn scenario_05_a_drain_that_a_budget_blocks_keeps_the_machine_and_every_other_node(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    let done = fixture.passes().len();
    fixture.pod("web", "o-w-1").await;
    fixture.pod_of("web", "web-2", "elsewhere").await;
    fixture.pod_is("web-2", "False").await;
    fixture.budget("web", 1).await;
    fixture
        .edit(json!({"spec": {"versions": {"kubernetes": NEW}, "workers": [
            {"provider": "static", "pool": "w", "nodes": 1},
        ]}}))
        .await;
    fixture.sleep(Duration::from_secs(600)).await;
    assert_eq!(reason(&fixture.object().await), "DrainRefused");
    // No version was looked at, let alone changed.
    let told = fixture.told(done);
    assert!(told.iter().all(|pass| pass.starts_with("34 after")), "{told:?}");
    assert_eq!(fixture.cordoned().await, ["o-w-1"]);
    assert_eq!(fixture.machines().len(), 3);
    assert!(fixture.has_pod("web").await);
    // What takes no node away goes on: another pool of workers comes.
    let workers = json!([
        {"provider": "static", "pool": "w", "nodes": 1}, {"provider": "static", "pool": "x", "nodes": 1},
    ]);
    fixture.edit(json!({"spec": {"workers": workers}})).await;
    fixture.start_agent("o-x-0").await;
    fixture
        .until("the machine of the new pool is a node", |orb| {
            orb["status"]["machines"]["o-x-0"]["joined"] == true
        })
        .await;
    assert_eq!(reason(&fixture.object().await), "DrainRefused");
    assert_eq!(fixture.cordoned().await, ["o-w-1"]);
    fixture
        .edit(json!({"spec": {"workers": [{"provider": "static", "pool": "w", "nodes": 1}]}}))
        .await;

    fixture.pod_is("web-2", "True").await;
    fixture
        .until("one worker is left", |_| fixture.machines().len() == 2)
        .await;
    for gone in ["o-w-1", "o-x-0"] {
        fixture.kill_agent(gone).await;
    }
    fixture.settles_again().await;
    assert!(!fixture.has_pod("web").await);
    assert_eq!(fixture.kubelets().await, [NEW; 2]);
}

async fn scenario_06_one_machine_that_is_never_prepared_lets_all_wait(on: &dyn Backend) {
    let fails = json!({
        "operation": "node.ensure", "vm": "o-w-1", "until": "1h", "then": {"failTask": {"fault": "NoMirror"}},
    });
    let fixture = Fixture::begin(on, json!({"faults": [fails]}), json!({}), 2).await;
    fixture.create(&orb(2, OLD)).await;
    fixture.sleep(Duration::from_secs(3_590)).await;
    assert_eq!(reason(&fixture.object().await), "WaitingForMachines");
    assert_eq!(fixture.told(0).last().map(String::as_str), Some("08 after 30 s"));
    assert!(fixture.begun("kubeadm.init").is_empty() && fixture.begun("kubeadm.join").is_empty());
    let told = fixture.agent_told("o-w-1", 0);
    assert_eq!(told[told.len() - 2..], ["06 Short", "06 after 10 s"]);
    fixture.until_fine().await;
    fixture.settles().await;
    assert_eq!(fixture.machine("o-w-1").reboots, 1);
}

async fn scenario_16_a_node_without_a_machine_is_an_error_while_it_is_ready_and_then_goes(on: &dyn Backend) {
    let vanishes = json!({"vm": "o-w-1", "at": "20m", "does": "vanish"});
    let fixture = Fixture::running(on, json!({"events": [vanishes]}), json!({}), 2).await;
    let (done, uid) = (
        fixture.passes().len(),
        fixture.node("o-w-1").await["metadata"]["uid"].clone(),
    );
    fixture.until_reason("NodeWithoutMachine").await;
    assert_eq!(fixture.node("o-w-1").await["metadata"]["uid"], uid);
    assert!(fixture.acts_on_nodes(done).is_empty());
    // Nobody hears of it any more, and a machine comes in its place.
    fixture.settles_again().await;
    let told = fixture.told(done);
    assert_eq!(told[..3], [FINE, "Short", "03 after 30 s"]);
    assert_eq!(
        fixture.acts_on_nodes(done)[..2],
        ["delete o-w-1", "pool.add-machine"]
    );
    assert_ne!(fixture.node("o-w-1").await["metadata"]["uid"], uid);
    assert_eq!(fixture.machines().len(), 3);
}

async fn orb_29_an_addition_in_doubt_adds_no_second_machine(on: &dyn Backend) {
    let faults = json!([
        {"operation": "pool.add-machine", "nth": 2, "then": "loseAnswer"},
        {"operation": "resolve", "count": 2, "then": {"fail": {"code": "unavailable"}}},
    ]);
    let fixture = Fixture::begin(on, json!({"faults": faults, "lag": "3s"}), json!({}), 2).await;
    fixture.create(&orb(2, OLD)).await;
    fixture.until_reason("AddInDoubt").await;
    fixture.until_fine().await;
    fixture.settles().await;
    assert!(
        fixture.edges().iter().any(|pass| pass == "29"),
        "{:?}",
        fixture.edges()
    );
    let added = fixture.begun("pool.add-machine");
    assert_eq!(added, names(2));
}

async fn orb_33_an_orb_that_is_deleted_takes_its_machines_along(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 1).await;
    let done = fixture.passes().len();
    fixture.pod("web", "o-w-0").await;
    fixture.delete().await;
    fixture.until("it is gone", Value::is_null).await;
    assert!(fixture.machines().is_empty());
    assert_eq!(fixture.told(done), ["33 after 30 s", "settled"]);
    let acts = fixture.acts();
    let removed = acts.iter().filter(|act| *act == "pool.remove-machine");
    assert_eq!(removed.count(), 2);
}

async fn orb_31_a_machine_that_could_not_join_joins_with_another_token(on: &dyn Backend) {
    let fails = json!({
        "operation": "kubeadm.join", "vm": "o-w-0", "nth": 1, "then": {"failTask": {"fault": "Timeout"}},
    });
    let fixture = Fixture::begin(on, json!({"faults": [fails]}), json!({}), 1).await;
    fixture.create(&orb(1, OLD)).await;
    fixture.until_reason("TaskFailed").await;
    fixture.until_fine().await;
    fixture.settles().await;
    let told = fixture.told(0);
    let failed = told
        .iter()
        .position(|pass| pass == "31 Short")
        .expect("it failed");
    assert_eq!(
        told[failed - 2..failed + 3],
        [
            "09b after 30 s",
            "30 after 30 s",
            "31 Short",
            "09b after 30 s",
            "30 after 30 s"
        ]
    );
    let revoked = fixture.acts().iter().filter(|act| *act == "revoke").count();
    assert_eq!((fixture.begun("kubeadm.join").len(), revoked), (2, 2));
}
