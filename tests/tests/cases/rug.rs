//! The cases of `rug-router`.

use rug_router::cases::Case;

fn in_the_sandbox(case: Case) {
    let ended = case.run(crate::cases::lifecycle("rug-router"));
    case.check(&ended);
    let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, rug_router::reconcile));
    assert_eq!(ended, natively);
}

rug_router::each_case!(in_the_sandbox);

#[test]
fn the_manifest_is_the_same_natively_and_as_a_component() {
    crate::cases::same_manifest("rug-router", rug_router::manifest());
}

pub(crate) fn run_all(recorded: &crate::cases::Recorded) {
    for (_, case) in rug_router::cases::all() {
        case.run(recorded.lifecycle("rug-router"));
    }
}
