//! The example `rug-router`.

use polity_core::contract::{Act, Request};
use polity_core::record::PassRecord;
use polity_tests::host_fixture::condition_of;
use polity_tests::passes::edges_of;
use serde_json::Value;

/// Requires that the router took these edges in this order, whatever else it did.
fn assert_in_order(passes: &[PassRecord], ids: &str) {
    let taken: Vec<String> = passes.iter().map(|pass| edges_of(pass, "RUG-")).collect();
    let mut all = taken.iter();
    assert!(
        ids.split(' ').all(|id| all.any(|edge| edge == id)),
        "{ids} of {taken:?}"
    );
}

/// What the cloud was told to do, in order.
fn acts(passes: &[PassRecord]) -> Vec<&str> {
    let roles = passes.iter().flat_map(|pass| &pass.roles);
    let entries = roles.flat_map(|role| &role.journal);
    let told = entries.filter_map(|entry| match &entry.request {
        Request::Act(Act::Cloud(act)) => Some(act.operation.as_str()),
        _ => None,
    });
    told.collect()
}

fn count(acts: &[&str], operation: &str) -> usize {
    acts.iter().filter(|act| **act == operation).count()
}

#[test]
fn routers_boot_come_back_are_plugged_rebuilt_and_deleted() {
    let ran = super::run("rug-router");
    let passes = |name: &str| ran.passes("Router", &format!("team-a/{name}"));

    let alpha = passes("alpha");
    assert_in_order(&alpha, "01 03 X15 17 21 02 09 22 X14 24 21");
    let told = acts(&alpha);
    assert_eq!((count(&told, "router.boot"), count(&told, "port.attach")), (1, 1));
    assert_eq!(count(&told, "router.delete"), 0);

    let beta = passes("beta");
    assert_in_order(&beta, "03 13 18 04 17 21 02 08 13 17 21");
    assert_eq!(count(&acts(&beta), "router.boot"), 2);
    assert_eq!(count(&acts(&beta), "config.push"), 3, "one was refused");

    let gamma = passes("gamma");
    assert_in_order(&gamma, "03 16 13 17 21 05 29 13 17 21");
    assert_eq!(count(&acts(&gamma), "router.boot"), 3, "one had no room");
    let shown = ran.explained("Router", "team-a/gamma");
    assert!(shown.contains("router-2026-02"), "{shown}");

    let delta = passes("delta");
    assert_in_order(&delta, "21 06 31 X12");
    let told = acts(&delta).split_off(2);
    assert_eq!(told[..2], ["router.delete-ports", "router.delete"]);
    // A look may lag behind the deletion, which is told once more then.
    assert!(told[2..].iter().all(|act| *act == "router.delete"), "{told:?}");

    let epsilon = passes("epsilon");
    assert_in_order(&epsilon, "03 13 21 02 11 02 09 22 24 21 02 10 26");
    assert!(epsilon.iter().any(lacks_a_port));
    assert_eq!(count(&acts(&epsilon), "router.boot"), 1);
}

fn lacks_a_port(pass: &PassRecord) -> bool {
    let object: Value = serde_json::from_str(pass.object.as_deref().expect("an object")).expect("JSON");
    condition_of(&object, "PortsPlugged").is_some_and(|said| said["reason"] == "PortOfAnotherRouter")
}
