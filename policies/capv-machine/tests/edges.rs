//! The table of cases, run natively.

use capv_machine::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, capv_machine::reconcile)));
}

capv_machine::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&capv_machine::manifest(), &capv_machine::cases::all());
}
