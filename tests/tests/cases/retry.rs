//! `mcm-retry` and `backoff-retry`.

mod mcm {
    use mcm_retry::cases::Case;

    fn in_the_sandbox(case: Case) {
        case.check(crate::decide("mcm-retry", case.trial()));
        case.check(polity_sdk::step::retry(case.trial(), mcm_retry::decide));
    }

    mcm_retry::each_case!(in_the_sandbox);
}

mod backoff {
    use backoff_retry::cases::Case;

    fn in_the_sandbox(case: Case) {
        case.check(crate::decide("backoff-retry", case.trial()));
        case.check(polity_sdk::step::retry(case.trial(), backoff_retry::decide));
    }

    backoff_retry::each_case!(in_the_sandbox);
}
