//! The table of cases, run natively.

use mcm_machineset::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_machineset::reconcile)));
}

mcm_machineset::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&mcm_machineset::manifest(), &mcm_machineset::cases::all());
}
