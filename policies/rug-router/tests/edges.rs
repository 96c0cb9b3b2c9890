//! The tables of cases, run natively.

use std::collections::BTreeSet;

use rug_router::cases::{self, Case};

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, rug_router::reconcile)));
}

rug_router::each_case!(natively);

#[test]
fn every_edge_of_the_specification_is_there_has_a_case_and_nothing_else_is_noted() {
    let manifest = rug_router::manifest();
    let edges: Vec<&str> = manifest.as_contract().edges.iter().map(|edge| edge.id.as_str()).collect();
    let drawn = (1..=31).map(|n| format!("RUG-{n:02}"));
    let added = (1..=16).map(|n| format!("RUG-X{n:02}"));
    assert_eq!(edges, drawn.chain(added).collect::<Vec<_>>());
    let cases = cases::all();
    let noted: BTreeSet<&str> = cases
        .iter()
        .flat_map(|(_, case)| case.edges())
        .map(String::as_str)
        .collect();
    assert_eq!(noted, edges.into_iter().collect());
}
