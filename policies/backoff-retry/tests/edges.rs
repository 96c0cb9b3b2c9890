//! The table of cases, run natively.

use backoff_retry::cases::Case;

fn natively(case: Case) {
    case.check(polity_sdk::step::retry(case.request(), backoff_retry::decide));
}

backoff_retry::each_case!(natively);
