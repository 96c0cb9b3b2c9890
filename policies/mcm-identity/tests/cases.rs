//! The table of cases, run natively.

use mcm_identity::cases::Case;

fn natively(case: Case) {
    case.check_judged(&case.judge(|pass| polity_sdk::step::identity(pass, mcm_identity::judge)));
}

mcm_identity::each_case!(natively);
