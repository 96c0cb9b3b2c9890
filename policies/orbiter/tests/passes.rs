//! Single passes with answers that are written down, as an author tries a policy by itself: what bad input gets. What
//! follows from pass to pass, with machines, agents and nodes, the scenarios tell (`tests/tests/scenarios/orbiter`).

use polity_sdk::cloud::pool;
use polity_sdk::test::World;
use polity_sdk::{Code, Failure, Next, RetryClass};
use serde_json::{Value, json};

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
        ("/versions/kubernetes", json!("banana"), "not a release"),
        ("/versions/kubernetes", json!("1.30"), "not a release"),
        ("/versions", json!({}), "not a release"),
        (
            "/versions",
            json!({"kubernetes": "1.30.2", "containerd": "1; reboot"}),
            "not a version",
        ),
        (
            "/versions",
            json!({"kubernetes": "1.30.2", "g++/x": "1"}),
            "not a version",
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

/// An Orb of two workers, one more or fewer than there are, whose provider knows these machines.
fn with_machines(machines: &[Value], workers: u32) -> World {
    let mut world = World::new(orb(json!({
        "controlPlane": {"pool": "cp", "nodes": 1}, "workers": [{"pool": "w", "nodes": workers}],
        "versions": {"kubernetes": "1.30.2"},
    })))
    .manifest(&orbiter::manifest());
    world
        .answers(pool::list(), json!({"pools": [{"pool": "cp"}, {"pool": "w"}]}))
        .answers(pool::machines(), json!({"machines": machines}));
    world
}

fn machine(pool: &str, tier: &str, number: u32) -> Value {
    let name = format!("o-{pool}-{number}");
    json!({
        "id": format!("id-{name}"), "name": name, "pool": pool, "tier": tier, "nodeName": name,
        "providerID": format!("cloud:///{name}"), "agent": "initialized",
    })
}

fn machines() -> Vec<Value> {
    vec![
        machine("cp", "control-plane", 0),
        machine("w", "worker", 0),
        machine("w", "worker", 1),
    ]
}

#[test]
fn scenario_15_while_nodes_cannot_be_seen_nothing_is_removed() {
    for workers in [2, 1] {
        let mut world = with_machines(&machines(), workers);
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
fn two_machines_that_answer_for_one_node_are_both_left_alone() {
    let mut all = machines();
    all[2]["nodeName"] = json!("o-w-0");
    let mut world = with_machines(&all, 2);
    for machine in machines() {
        world.exists(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": machine["nodeName"], "labels": {"orbiter.polity.dev/orb": "o"}},
            "spec": {"providerID": machine["providerID"]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
    }
    let ended = world.pass(orbiter::reconcile);
    assert_eq!(ended.acts(), [""; 0]);
    assert_eq!(world.status()["conditions"][0]["reason"], "DuplicateNode");
}
