//! `rug-router`.

use polity_core::contract::{Act, Request};
use polity_core::record::PassRecord;
use polity_tests::passes::edges_of;
use polity_tests::stand::condition_of;
use serde_json::Value;

/// The edges that were taken, in order. Of the passes of a round that goes on and on the first are told alone.
fn took(passes: &[PassRecord]) -> String {
    let mut told: Vec<String> = Vec::new();
    for pass in passes {
        told.push(edges_of(pass, "RUG-"));
        for round in [1, 2] {
            let end = told.len();
            if end >= 2 * round && told[end - round..] == told[end - 2 * round..end - round] {
                told.truncate(end - round);
            }
        }
    }
    told.retain(|edges| !edges.is_empty());
    told.join(" ")
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
    let all = took(&alpha);
    assert!(all.starts_with("01 03 X15"), "{all}");
    assert!(all.contains(" 02 09 22 X14 24 21"), "{all}");
    let told = acts(&alpha);
    assert_eq!((count(&told, "router.boot"), count(&told, "port.attach")), (1, 1));
    assert_eq!(count(&told, "router.delete"), 0);

    let beta = passes("beta");
    let all = took(&beta);
    assert!(all.contains(" 02 08 13 "), "{all}");
    assert_eq!(count(&acts(&beta), "router.boot"), 2);
    assert_eq!(count(&acts(&beta), "config.push"), 3, "one was refused");

    let gamma = passes("gamma");
    let all = took(&gamma);
    assert!(all.starts_with("01 03 16 13 "), "{all}");
    assert!(
        all.contains(" 05 28 29 13 ") || all.contains(" 05 29 13 "),
        "{all}"
    );
    let shown = ran.explained("Router", "team-a/gamma");
    assert!(shown.contains("router-2026-02"), "{shown}");

    let delta = passes("delta");
    let all = took(&delta);
    assert!(all.ends_with(" 31 X12"), "{all}");
    assert_eq!(
        acts(&delta)[2..],
        ["router.delete-ports", "router.delete"],
        "nothing twice"
    );

    let epsilon = passes("epsilon");
    let all = took(&epsilon);
    assert!(all.contains(" 02 09 22 X14 24 21"), "{all}");
    assert!(all.contains(" 02 10 26"), "{all}");
    let withheld = |pass: &&PassRecord| {
        let object: Value = serde_json::from_str(pass.object.as_deref().expect("an object")).expect("JSON");
        condition_of(&object, "PortsPlugged").is_some_and(|said| said["reason"] == "PortOfAnotherRouter")
    };
    assert!(epsilon.iter().any(|pass| withheld(&pass)));
    assert_eq!(count(&acts(&epsilon), "router.boot"), 1);
}
