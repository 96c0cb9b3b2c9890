//! Bad input leads to a condition with a clear reason and another try. Nothing is deleted because of it, and no second
//! node is changed meanwhile.

use std::time::Duration;

use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::fixture::*;
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
async fn stuck(fixture: &Fixture, seconds: u64) {
    fixture.sleep(Duration::from_secs(seconds)).await;
    assert_eq!(fixture.annotation("o-cp-0", ALLOWED).await, "true");
    assert_eq!(fixture.cordoned().await, ["o-cp-0"]);
    assert_eq!(fixture.machines().len(), 3);
    assert_eq!(fixture.kubelets().await[1..], [OLD; 2]);
    let deletes = |act: &String| act.starts_with("delete") || act == "pool.remove-machine";
    assert!(!fixture.acts_on_nodes(0).iter().any(deletes));
}

async fn a_pool_of_minus_one_is_refused_where_it_is_written(on: &dyn Backend) {
    let fixture = Fixture::begin(on, json!({}), json!({}), 1).await;
    let refused = |story: &Story, orb: Value| {
        let cluster = story.site.cluster.clone();
        async move { cluster.apply(&orb).await.expect_err("it is refused").message }
    };
    let said = refused(&fixture, orb(-1, OLD)).await;
    assert!(said.contains("spec.workers[0].nodes"), "{said}");
    let mut two = orb(1, OLD);
    two["spec"]["controlPlane"]["nodes"] = json!(2);
    let said = refused(&fixture, two).await;
    assert!(said.contains("spec.controlPlane.nodes"), "{said}");
    fixture.sleep(Duration::from_secs(2)).await;
    assert!(fixture.object().await.is_null() && fixture.passes().is_empty());

    // What the schema cannot say the policy says, and asks nothing.
    let mut twice = orb(1, OLD);
    twice["spec"]["workers"][0]["pool"] = json!("cp");
    fixture.create(&twice).await;
    let orb = fixture.until_reason("SpecInvalid").await;
    assert_eq!(orb["status"]["phase"], "degraded");
    fixture.until_passes(|passes| passes.len() > 2).await;
    assert_eq!(fixture.told(0), ["Short"]);
    assert!(fixture.acts().is_empty() && fixture.machines().is_empty());
}

async fn a_version_that_does_not_exist_stops_at_the_first_node_until_there_is_another_one(on: &dyn Backend) {
    let there = json!([OLD, NEW]);
    let known = json!({"packages": {"known": {"kubelet": there, "kubeadm": there}}});
    let fixture = Fixture::running(on, known, json!({}), 2).await;
    fixture.version("1.31.99").await;
    fixture.until_said("o-cp-0", "NoSuchVersion").await;
    stuck(&fixture, 1_800).await;
    assert_eq!(reason(&fixture.object().await), "WaitingForNodeAgent");
    assert_eq!(fixture.said("o-cp-0").await, "NoSuchVersion");
    assert!(fixture.begun("node.ensure").len() > 13, "it is tried again");
    assert!(
        fixture.begun("node.ensure")[3..]
            .iter()
            .all(|node| node == "o-cp-0")
    );

    fixture.version(NEW).await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
    assert_eq!(fixture.said("o-cp-0").await, "Current");
}

async fn a_version_to_which_no_way_leads_is_refused(on: &dyn Backend) {
    let known = json!({"kubernetesReleases": ["1.30.14"]});
    let fixture = Fixture::running(on, json!({}), known, 1).await;
    let done = fixture.passes().len();
    fixture.version("1.33.0").await;
    fixture.until_reason("NoPath").await;
    fixture.sleep(Duration::from_secs(300)).await;
    assert_eq!(fixture.told(done), ["Short"]);
    assert!(fixture.acts_on_nodes(done).is_empty());
    fixture.version(NEW).await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 2]);
}

async fn garbage_in_the_annotations_allows_nothing_and_is_put_right(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.settles().await;
    let garbage = json!({ALLOWED: "yes please", READY: "maybe", DESIRED: "$(reboot)", CURRENT: "\u{1F4A9}"});
    fixture.annotate("o-w-0", garbage).await;
    fixture.settles_again().await;
    for (name, value) in [
        (ALLOWED, "false"),
        (READY, "true"),
        (DESIRED, OLD),
        (CURRENT, OLD),
    ] {
        assert_eq!(fixture.annotation("o-w-0", name).await, value, "{name}");
    }
    assert_eq!(
        fixture.begun("node.ensure"),
        names(2),
        "nothing had to be installed"
    );
    assert_eq!(fixture.said("o-w-0").await, "Current");
    assert!(fixture.cordoned().await.is_empty());
    assert_eq!(fixture.machine("o-w-0").reboots, 1);
}

async fn a_machine_that_answers_for_another_node_is_left_alone(on: &dyn Backend) {
    let lies = json!({
        "operation": "node.work", "vm": "o-cp-0", "from": "20m", "until": "80m",
        "then": {"answerWith": {"node": "o-w-1", "bootId": "another"}},
    });
    let fixture = Fixture::running(on, json!({"faults": [lies]}), json!({}), 2).await;
    fixture.until_second(20 * 60 + 30).await;
    fixture.version(NEW).await;
    fixture.until_said("o-cp-0", "WrongNode").await;
    fixture
        .until_node("o-cp-0", "it is told what it needs", |node| {
            told_by(node, DESIRED) == NEW
        })
        .await;
    stuck(&fixture, 1_800).await;
    assert_eq!(reason(&fixture.object().await), "WaitingForNodeAgent");
    assert_eq!(fixture.begun("node.ensure"), names(2), "nothing is installed");
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn an_agent_that_is_bound_to_another_node_does_nothing(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    let mut wrong = agent("o-cp-0");
    wrong["spec"]["policies"]["lifecycle"]["configuration"]["node"] = json!("o-w-1");
    fixture.create(&wrong).await;
    fixture.version(NEW).await;
    fixture.until_said("o-cp-0", "WrongNode").await;
    fixture
        .until_node("o-cp-0", "it is told what it needs", |node| {
            told_by(node, DESIRED) == NEW
        })
        .await;
    stuck(&fixture, 1_800).await;
    assert_eq!(
        fixture.begun("node.ensure"),
        names(2),
        "nothing is installed, there or here"
    );
    fixture.start_agent("o-cp-0").await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn a_node_that_never_comes_back_from_its_reboot_is_waited_for(on: &dyn Backend) {
    let overrides = json!({
        "packages": {"rebootFor": ["kubelet"]},
        // The first reboot is that of its preparation.
        "faults": [{"operation": "node.reboot", "vm": "o-cp-0", "nth": 2, "then": "neverReturns"}],
        "events": [{"vm": "o-cp-0", "at": "2h", "does": "powerOn"}],
    });
    let fixture = Fixture::running(on, overrides, json!({"updateTimeout": "40m"}), 2).await;
    fixture.version(NEW).await;
    let orb = fixture.until_reason("NodeNotReady").await;
    assert_eq!(orb["status"]["phase"], "maintaining");
    assert_eq!(orb["status"]["machines"]["o-cp-0"]["rebooting"], true);
    stuck(&fixture, 1_200).await;
    assert_eq!(reason(&fixture.object().await), "NodeNotReady");
    stuck(&fixture, 1_800).await;
    let orb = fixture.object().await;
    assert_eq!(
        (reason(&orb), &orb["status"]["phase"]),
        ("UpdateTimeout", &json!("degraded"))
    );
    assert_eq!(fixture.machine("o-cp-0").reboots, 2, "it was told to once");
    // Somebody turns it on.
    fixture.until_second(2 * 3_600).await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
    assert_eq!(fixture.machine("o-cp-0").reboots, 2);
}

async fn a_version_goes_back_no_further_than_what_some_node_has(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.version("1.31.1").await;
    fixture
        .until_node("o-cp-0", "it is upgraded", |node| {
            told_by(node, CURRENT) == "1.31.1"
        })
        .await;
    // Literally, the lowest node decides: the control plane would be taken back a minor version.
    fixture.version(OLD).await;
    fixture.until_reason("DowngradeRefused").await;
    fixture.sleep(Duration::from_secs(1_800)).await;
    assert_eq!(reason(&fixture.object().await), "DowngradeRefused");
    assert_eq!(fixture.annotation("o-cp-0", DESIRED).await, "1.31.1");
    assert_eq!(fixture.annotation("o-w-0", DESIRED).await, OLD);
    fixture.version("1.31.2").await;
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, ["1.31.2"; 3]);
}

async fn a_flag_that_somebody_else_has_set_is_taken_back_while_another_node_is_changed(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 2).await;
    fixture.version(NEW).await;
    fixture
        .until_node("o-cp-0", "it is told what it needs", |node| {
            told_by(node, DESIRED) == NEW
        })
        .await;
    // Its agent would change it at once: nothing is wanted of it yet.
    fixture.annotate("o-w-1", json!({ALLOWED: "true"})).await;
    fixture
        .until_node("o-w-1", "it is taken back", |node| {
            told_by(node, ALLOWED) != "true"
        })
        .await;
    assert_eq!(fixture.annotation("o-cp-0", ALLOWED).await, "true");
    assert!(
        fixture.events().contains(&"ChangeWithdrawn".to_owned()),
        "{:?}",
        fixture.events()
    );
    fixture.forgive();
    fixture.settles_again().await;
    assert_eq!(fixture.kubelets().await, [NEW; 3]);
}

async fn a_node_of_somebody_else_is_not_taken_for_a_machine_s(on: &dyn Backend) {
    let fixture = Fixture::running(on, json!({}), json!({}), 1).await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "o-w-1"}, "spec": {"providerID": "other:///1"},
    });
    fixture.create(&foreign).await;
    let uid = fixture.node("o-w-1").await["metadata"]["uid"].clone();
    fixture.start_agent("o-w-1").await;
    fixture.workers(2).await;
    fixture.until_reason("ForeignNode").await;
    fixture.sleep(Duration::from_secs(300)).await;
    assert_eq!(fixture.begun("kubeadm.join"), ["o-w-0"]);
    assert_eq!(
        fixture.node("o-w-1").await["metadata"]["uid"],
        uid,
        "it is not ours to delete"
    );
    let node = polity_tests::host_fixture::reference("v1", "Node", None, "o-w-1");
    fixture.site.delete(&node, None).await.expect("it is there");
    fixture.settles_again().await;
    assert_eq!(
        fixture.node("o-w-1").await["metadata"]["labels"]["orbiter.polity.dev/orb"],
        "o"
    );
}
