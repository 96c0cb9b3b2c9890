//! The table of cases, run natively.

use mcm_safety::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_safety::reconcile)));
}

mcm_safety::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&mcm_safety::manifest(), &mcm_safety::cases::all());
}

#[test]
fn it_holds_nothing_back_from_deletion() {
    assert_eq!(mcm_safety::manifest().as_contract().finalizer, None);
}
