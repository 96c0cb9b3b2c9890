//! Single passes with an object and fixed answers, as an author tests a policy. The scenarios test many passes in a row,
//! in a cloud with a state (`tests/tests/scenarios/capv.rs`).

use polity_sdk::Next;
use polity_sdk::cloud::vm;
use polity_sdk::contract::Request;
use polity_sdk::test::World;
use serde_json::{Value, json};

/// A machine with this status.
fn machine(status: Value) -> World {
    World::new(json!({
        "apiVersion": "capv.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m-1", "namespace": "team", "uid": "uid-1"},
        "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "prod", "dhcp4": true}]}},
        "status": status,
    }))
    .manifest(&capv_machine::manifest())
}

/// A new machine, in a cloud that performs every request.
fn new_machine() -> World {
    let mut world = machine(json!({}));
    world.lacks(vm::by_instance_uuid("uid-1"));
    world.responds(|request| match request {
        Request::Ask(_) => None,
        Request::Act(_) => Some(Ok(json!({"task": "task-1"}).to_string())),
    });
    world
}

#[test]
fn a_new_machine_is_cloned_and_its_task_is_written_down() {
    let mut world = new_machine();
    let ended = world.pass(capv_machine::reconcile);
    let [clone] = &ended.acts()[..] else {
        panic!("{:?}", ended.acts())
    };
    assert!(
        clone.starts_with(r#"vm.clone {"name":"m-1","instanceUuid":"uid-1""#),
        "{clone}"
    );
    assert_eq!(world.status()["taskRef"], "task-1");
    assert_eq!(ended.next, Next::After(20_000));
}

#[test]
fn a_task_that_runs_is_waited_for_and_nothing_else_is_asked() {
    let mut world = machine(json!({"taskRef": "task-1", "taskKind": "clone", "phase": "Cloning"}));
    world.answers(
        vm::task("task-1"),
        json!({"id": "task-1", "state": "running", "kind": "clone"}),
    );
    let ended = world.pass(capv_machine::reconcile);
    assert_eq!(ended.requests(), [[r#"task.get {"id":"task-1"}"#]]);
    assert_eq!(ended.notes, ["CAPV-02", "CAPV-04", "CAPV-05"]);
}

/// The host detects stale reads. For that, the policy must make the same act with the same intent from the same object.
#[test]
fn the_same_object_asks_for_the_same_clone() {
    let first = new_machine().pass(capv_machine::reconcile);
    let again = new_machine().pass(capv_machine::reconcile);
    assert_eq!(first.steps, again.steps);
}
