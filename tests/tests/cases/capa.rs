//! The cases of `capa-identity`.

use capa_identity::cases::Case;

fn in_the_sandbox(case: Case) {
    let ended = case.judge(crate::cases::identity("capa-identity"));
    case.check_judged(&ended);
    let natively = case.judge(|pass| polity_sdk::step::identity(pass, capa_identity::judge));
    assert_eq!(ended, natively);
}

capa_identity::each_case!(in_the_sandbox);

pub(crate) fn run_all(recorded: &crate::cases::Recorded) {
    for (_, case) in capa_identity::cases::all() {
        case.judge(recorded.identity("capa-identity"));
    }
}

#[test]
fn the_manifest_is_the_same_natively_and_as_a_component() {
    crate::cases::same_manifest("capa-identity", capa_identity::manifest());
}
