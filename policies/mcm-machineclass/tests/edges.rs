//! The table of cases, run natively.

use mcm_machineclass::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_machineclass::reconcile)));
}

mcm_machineclass::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&mcm_machineclass::manifest(), &mcm_machineclass::cases::all());
}
