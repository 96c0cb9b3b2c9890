//! The freeze of the specification (d6): passes one after the other while an API server goes and comes back.

use std::time::Duration;

use polity_sdk::contract::{Code, Failure};
use polity_sdk::test::{World, describe};
use polity_sdk::{Next, Time};
use serde_json::json;
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn an_outage_freezes_after_thirty_seconds_and_the_first_answer_thaws() {
    let up = Rc::new(Cell::new(true));
    let mut world = World::new(json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety",
        "metadata": {"name": "default", "uid": "u"},
    }))
    .manifest(&mcm_safety::manifest());
    let answers = Rc::clone(&up);
    world.responds(move |request| {
        assert_eq!(describe(request), "reachable home");
        Some(match answers.get() {
            true => Ok("true".to_owned()),
            false => Err(Failure::new(Code::Unavailable, "silent")),
        })
    });
    let frozen = |world: &World| world.status()["frozen"] == true;
    let pass = |world: &mut World| {
        let ended = world.pass(mcm_safety::reconcile);
        world.wait(&ended.next, Duration::ZERO);
        ended.next
    };
    assert_eq!(pass(&mut world), Next::Settled(Some(60_000)));
    up.set(false);
    let silent = world.now();
    let mut probes = 0;
    while !frozen(&world) {
        assert_eq!(pass(&mut world), Next::After(6_000));
        probes += 1;
    }
    assert_eq!(probes, 7);
    let since: Time = serde_json::from_value(world.status()["since"].clone()).unwrap();
    assert_eq!(since.since(silent), Duration::from_secs(36));
    for _ in 0..5 {
        assert_eq!(pass(&mut world), Next::After(6_000));
        assert!(frozen(&world));
    }
    up.set(true);
    assert_eq!(pass(&mut world), Next::Settled(Some(60_000)));
    assert!(!frozen(&world));
    let thawed: Time = serde_json::from_value(world.status()["since"].clone()).unwrap();
    assert!(thawed > since);
}

#[test]
fn it_holds_nothing_back_from_deletion() {
    assert_eq!(mcm_safety::manifest().as_contract().finalizer, None);
}
