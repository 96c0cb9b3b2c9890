//! The table of cases, run natively.

use std::collections::BTreeSet;

use orbiter::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, orbiter::reconcile)));
}

orbiter::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&orbiter::manifest(), &orbiter::cases::all());
}

/// Each edge is orbiter's or the agent's, and both together are all.
#[test]
fn the_two_policies_share_the_edges_of_the_drawing() {
    let of = |manifest: polity_sdk::Manifest| -> BTreeSet<String> {
        manifest
            .as_contract()
            .edges
            .iter()
            .map(|edge| edge.id.clone())
            .collect()
    };
    let (ours, theirs) = (of(orbiter::manifest()), of(orbiter_node_agent::manifest()));
    assert!(ours.is_disjoint(&theirs));
    let numbers: BTreeSet<u32> = ours.union(&theirs).map(|id| id[4..6].parse().unwrap()).collect();
    assert_eq!(numbers, (1..=37).collect());
}
