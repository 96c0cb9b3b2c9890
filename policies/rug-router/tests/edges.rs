//! The tables of cases, run natively.

use rug_router::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, rug_router::reconcile)));
}

rug_router::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&rug_router::manifest(), &rug_router::cases::all());
}

#[test]
fn every_edge_of_the_specification_is_there() {
    let manifest = rug_router::manifest();
    let edges = manifest.as_contract().edges.iter();
    let drawn = (1..=31).map(|n| format!("RUG-{n:02}"));
    let added = (1..=17).map(|n| format!("RUG-X{n:02}"));
    let ids: Vec<&str> = edges.map(|edge| edge.id.as_str()).collect();
    assert_eq!(ids, drawn.chain(added).collect::<Vec<_>>());
}
