//! What bad input gets: a condition with a clear reason, another try, and nothing else. Nothing is deleted because of it,
//! and no second node is touched meanwhile.

use std::time::Duration;

use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::land::*;
use crate::scenarios::scenarios;

scenarios! {
    a_version_that_does_not_exist_stops_at_the_first_node_until_there_is_another_one,
    a_version_to_which_no_way_leads_is_refused,
    garbage_in_the_annotations_allows_nothing_and_is_put_right,
    a_machine_that_answers_for_another_node_is_left_alone,
    an_agent_that_is_bound_to_another_node_does_nothing,
    a_node_that_never_comes_back_from_its_reboot_is_waited_for,
    a_version_goes_back_no_further_than_what_some_node_has,
    a_flag_that_somebody_else_has_set_is_taken_back_while_another_node_is_changed,
    a_node_of_somebody_else_is_not_taken_for_a_machine_s;
    short:
    a_pool_of_minus_one_is_refused_where_it_is_written,
}

/// The first node is being changed, and that is all.
async fn stuck(land: &Land, seconds: u64) {
    land.sleep(Duration::from_secs(seconds)).await;
    assert_eq!(land.annotation("o-cp-0", ALLOWED).await, "true");
    assert_eq!(land.cordoned().await, ["o-cp-0"]);
    assert_eq!(land.machines().len(), 3);
    assert_eq!(land.kubelets().await[1..], [OLD; 2]);
    let deletes = |act: &String| act.starts_with("delete") || act == "pool.remove-machine";
    assert!(!land.acts_on_nodes(0).iter().any(deletes));
}

async fn a_pool_of_minus_one_is_refused_where_it_is_written(on: &dyn Backend) {
    let land = Land::begin(on, json!({}), json!({}), 1).await;
    let refused = |story: &Story, orb: Value| {
        let cluster = story.site.cluster.clone();
        async move { cluster.apply(&orb).await.expect_err("it is refused").message }
    };
    let said = refused(&land, orb(-1, OLD)).await;
    assert!(said.contains("spec.workers[0].nodes"), "{said}");
    let mut two = orb(1, OLD);
    two["spec"]["controlPlane"]["nodes"] = json!(2);
    let said = refused(&land, two).await;
    assert!(said.contains("spec.controlPlane.nodes"), "{said}");
    land.sleep(Duration::from_secs(2)).await;
    assert!(land.object().await.is_null() && land.passes().is_empty());

    // What the schema cannot say the policy says, and asks nothing.
    let mut twice = orb(1, OLD);
    twice["spec"]["workers"][0]["pool"] = json!("cp");
    land.create(&twice).await;
    let orb = land.until_reason("SpecInvalid").await;
    assert_eq!(orb["status"]["phase"], "degraded");
    land.until_passes(|passes| passes.len() > 2).await;
    assert_eq!(land.told(0), ["Short"]);
    assert!(land.acts().is_empty() && land.machines().is_empty());
}

async fn a_version_that_does_not_exist_stops_at_the_first_node_until_there_is_another_one(on: &dyn Backend) {
    let there = json!([OLD, NEW]);
    let known = json!({"packages": {"known": {"kubelet": there, "kubeadm": there}}});
    let land = Land::running(on, known, json!({}), 2).await;
    land.version("1.31.99").await;
    land.until_said("o-cp-0", "NoSuchVersion").await;
    stuck(&land, 1_800).await;
    assert_eq!(reason(&land.object().await), "WaitingForNodeAgent");
    assert_eq!(land.said("o-cp-0").await, "NoSuchVersion");
    assert!(land.begun("node.ensure").len() > 13, "it is tried again");
    assert!(land.begun("node.ensure")[3..].iter().all(|node| node == "o-cp-0"));

    land.version(NEW).await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
    assert_eq!(land.said("o-cp-0").await, "Current");
}

async fn a_version_to_which_no_way_leads_is_refused(on: &dyn Backend) {
    let known = json!({"kubernetesReleases": ["1.30.14"]});
    let land = Land::running(on, json!({}), known, 1).await;
    let done = land.passes().len();
    land.version("1.33.0").await;
    land.until_reason("NoPath").await;
    land.sleep(Duration::from_secs(300)).await;
    assert_eq!(land.told(done), ["Short"]);
    assert!(land.acts_on_nodes(done).is_empty());
    land.version(NEW).await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 2]);
}

async fn garbage_in_the_annotations_allows_nothing_and_is_put_right(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    land.settles().await;
    let garbage = json!({ALLOWED: "yes please", READY: "maybe", DESIRED: "$(reboot)", CURRENT: "\u{1F4A9}"});
    land.annotate("o-w-0", garbage).await;
    land.settles_again().await;
    for (name, value) in [
        (ALLOWED, "false"),
        (READY, "true"),
        (DESIRED, OLD),
        (CURRENT, OLD),
    ] {
        assert_eq!(land.annotation("o-w-0", name).await, value, "{name}");
    }
    assert_eq!(land.begun("node.ensure"), names(2), "nothing had to be installed");
    assert_eq!(land.said("o-w-0").await, "Current");
    assert!(land.cordoned().await.is_empty());
    assert_eq!(land.machine("o-w-0").reboots, 1);
}

async fn a_machine_that_answers_for_another_node_is_left_alone(on: &dyn Backend) {
    let lies = json!({
        "operation": "node.work", "vm": "o-cp-0", "from": "20m", "until": "80m",
        "then": {"answerWith": {"node": "o-w-1", "bootId": "another"}},
    });
    let land = Land::running(on, json!({"faults": [lies]}), json!({}), 2).await;
    land.until_second(20 * 60 + 30).await;
    land.version(NEW).await;
    land.until_said("o-cp-0", "WrongNode").await;
    land.until_node("o-cp-0", "it is told what it needs", |node| {
        told_by(node, DESIRED) == NEW
    })
    .await;
    stuck(&land, 1_800).await;
    assert_eq!(reason(&land.object().await), "WaitingForNodeAgent");
    assert_eq!(land.begun("node.ensure"), names(2), "nothing is installed");
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

async fn an_agent_that_is_bound_to_another_node_does_nothing(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    let mut wrong = agent("o-cp-0");
    wrong["spec"]["policies"]["lifecycle"]["configuration"]["node"] = json!("o-w-1");
    land.create(&wrong).await;
    land.version(NEW).await;
    land.until_said("o-cp-0", "WrongNode").await;
    land.until_node("o-cp-0", "it is told what it needs", |node| {
        told_by(node, DESIRED) == NEW
    })
    .await;
    stuck(&land, 1_800).await;
    assert_eq!(
        land.begun("node.ensure"),
        names(2),
        "nothing is installed, there or here"
    );
    land.start_agent("o-cp-0").await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

async fn a_node_that_never_comes_back_from_its_reboot_is_waited_for(on: &dyn Backend) {
    let trouble = json!({
        "packages": {"rebootFor": ["kubelet"]},
        // The first reboot is that of its preparation.
        "faults": [{"operation": "node.reboot", "vm": "o-cp-0", "nth": 2, "then": "neverReturns"}],
        "events": [{"vm": "o-cp-0", "at": "2h", "does": "powerOn"}],
    });
    let land = Land::running(on, trouble, json!({"updateTimeout": "40m"}), 2).await;
    land.version(NEW).await;
    let orb = land.until_reason("NodeNotReady").await;
    assert_eq!(orb["status"]["phase"], "maintaining");
    assert_eq!(orb["status"]["machines"]["o-cp-0"]["rebooting"], true);
    stuck(&land, 1_200).await;
    assert_eq!(reason(&land.object().await), "NodeNotReady");
    stuck(&land, 1_800).await;
    let orb = land.object().await;
    assert_eq!(
        (reason(&orb), &orb["status"]["phase"]),
        ("UpdateTimeout", &json!("degraded"))
    );
    assert_eq!(land.machine("o-cp-0").reboots, 2, "it was told to once");
    // Somebody turns it on.
    land.until_second(2 * 3_600).await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
    assert_eq!(land.machine("o-cp-0").reboots, 2);
}

async fn a_version_goes_back_no_further_than_what_some_node_has(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    land.version("1.31.1").await;
    land.until_node("o-cp-0", "it is upgraded", |node| {
        told_by(node, CURRENT) == "1.31.1"
    })
    .await;
    // Literally, the lowest node decides: the control plane would be taken back a minor version.
    land.version(OLD).await;
    land.until_reason("DowngradeRefused").await;
    land.sleep(Duration::from_secs(1_800)).await;
    assert_eq!(reason(&land.object().await), "DowngradeRefused");
    assert_eq!(land.annotation("o-cp-0", DESIRED).await, "1.31.1");
    assert_eq!(land.annotation("o-w-0", DESIRED).await, OLD);
    land.version("1.31.2").await;
    land.settles_again().await;
    assert_eq!(land.kubelets().await, ["1.31.2"; 3]);
}

async fn a_flag_that_somebody_else_has_set_is_taken_back_while_another_node_is_changed(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 2).await;
    land.version(NEW).await;
    land.until_node("o-cp-0", "it is told what it needs", |node| {
        told_by(node, DESIRED) == NEW
    })
    .await;
    // Its agent would change it at once: nothing is wanted of it yet.
    land.annotate("o-w-1", json!({ALLOWED: "true"})).await;
    land.until_node("o-w-1", "it is taken back", |node| {
        told_by(node, ALLOWED) != "true"
    })
    .await;
    assert_eq!(land.annotation("o-cp-0", ALLOWED).await, "true");
    assert!(
        land.events().contains(&"ChangeWithdrawn".to_owned()),
        "{:?}",
        land.events()
    );
    land.forgive();
    land.settles_again().await;
    assert_eq!(land.kubelets().await, [NEW; 3]);
}

async fn a_node_of_somebody_else_is_not_taken_for_a_machine_s(on: &dyn Backend) {
    let land = Land::running(on, json!({}), json!({}), 1).await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "o-w-1"}, "spec": {"providerID": "other:///1"},
    });
    land.create(&foreign).await;
    let uid = land.node("o-w-1").await["metadata"]["uid"].clone();
    land.start_agent("o-w-1").await;
    land.workers(2).await;
    land.until_reason("ForeignNode").await;
    land.sleep(Duration::from_secs(300)).await;
    assert_eq!(land.begun("kubeadm.join"), ["o-w-0"]);
    assert_eq!(
        land.node("o-w-1").await["metadata"]["uid"],
        uid,
        "it is not ours to delete"
    );
    let node = polity_tests::stand::reference("v1", "Node", None, "o-w-1");
    land.site.delete(&node, None).await.expect("it is there");
    land.settles_again().await;
    assert_eq!(
        land.node("o-w-1").await["metadata"]["labels"]["orbiter.polity.dev/orb"],
        "o"
    );
}
