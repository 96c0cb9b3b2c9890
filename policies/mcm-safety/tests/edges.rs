//! The table of cases, run natively.

use mcm_safety::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_safety::reconcile)));
}

mcm_safety::each_case!(natively);
