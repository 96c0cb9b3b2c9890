//! The cases of `mcm-retry` and `backoff-retry`.

mod mcm {
    use mcm_retry::cases::Case;

    fn in_the_sandbox(case: Case) {
        case.check(crate::cases::decide("mcm-retry", case.request()));
        case.check(polity_sdk::step::retry(case.request(), mcm_retry::decide));
    }

    mcm_retry::each_case!(in_the_sandbox);
}

mod backoff {
    use backoff_retry::cases::Case;

    fn in_the_sandbox(case: Case) {
        case.check(crate::cases::decide("backoff-retry", case.request()));
        case.check(polity_sdk::step::retry(case.request(), backoff_retry::decide));
    }

    backoff_retry::each_case!(in_the_sandbox);
}
