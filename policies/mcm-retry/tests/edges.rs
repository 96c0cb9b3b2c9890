//! The table of cases, run natively.

use mcm_retry::cases::Case;

fn natively(case: Case) {
    case.check(polity_sdk::step::retry(case.request(), mcm_retry::decide));
}

mcm_retry::each_case!(natively);
