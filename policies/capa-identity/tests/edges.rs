//! The table of cases, run natively.

use capa_identity::cases::Case;

fn natively(case: Case) {
    case.check_judged(&case.judge(|pass| polity_sdk::step::identity(pass, capa_identity::judge)));
}

capa_identity::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&capa_identity::manifest(), &capa_identity::cases::all());
}
