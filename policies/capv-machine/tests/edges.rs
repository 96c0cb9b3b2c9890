//! The table of cases, run natively.

use capv_machine::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, capv_machine::reconcile)));
}

capv_machine::each_case!(natively);
