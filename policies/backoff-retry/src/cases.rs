//! The table of cases: how a pass ended, and how long the policy waits then.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component in the sandbox. [`each_case!`](crate::each_case) makes a test
//! of each case.

use polity_sdk::{Code, RetryClass};
use serde_json::json;

pub use polity_sdk::test::RetryCase as Case;

/// A short retry after a failure, on the curve 1 s, 2 s, 4 s, 8 s, with a minute of rest after four tries.
fn failed(attempt: u32) -> Case {
    let short = json!({"base": "1s", "cap": "8s", "tries": 4, "coolDown": "1m"});
    let mut classes = json!({});
    classes["short"] = short;
    Case::new(RetryClass::Short)
        .code(Code::Unavailable)
        .attempt(attempt)
        .config(json!({"classes": classes}))
}

polity_sdk::cases! { $ each_case of backoff_retry::cases;

the_first_wait_is_at_most_the_base:
    failed(0).seed(1_000).waits(1_000);

a_seed_past_the_longest_wait_begins_below_again:
    failed(0).seed(1_001 + 321).waits(321);

the_longest_wait_doubles:
    failed(2).seed(4_000).waits(4_000);

the_longest_wait_stops_at_the_cap:
    failed(3).seed(8_001).waits(100);

no_wait_is_shorter_than_the_floor:
    failed(0).seed(0).waits(100);

no_wait_is_shorter_than_the_other_side_asks_for:
    failed(0).seed(0).retry_after(20_000).waits(20_000);

a_longer_wait_than_the_other_side_asks_for_stands:
    failed(4).seed(500).retry_after(20_000).waits(60_500);

the_floor_is_the_bindings:
    Case::new(RetryClass::Short).config(json!({"floor": "2s"})).waits(2_000);

after_the_tries_comes_the_cool_down:
    failed(4).seed(500).waits(60_500);

after_the_cool_down_it_begins_anew:
    failed(5).seed(1_000).waits(1_000);

without_tries_there_is_no_cool_down:
    Case::new(RetryClass::Conflict).attempt(u32::MAX).seed(5_000).waits(5_000);

no_tries_at_all_is_nothing_but_cool_down:
    Case::new(RetryClass::Short)
        .config(json!({"codes": {"internal": {"base": "1s", "cap": "1s", "tries": 0, "coolDown": "10m"}}}))
        .code(Code::Internal).waits(600_000);

a_code_may_have_a_curve_of_its_own:
    Case::new(RetryClass::Short)
        .config(json!({"codes": {"unauthenticated": {"base": "20s", "cap": "1h"}}}))
        .code(Code::Unauthenticated).attempt(3).seed(160_000).waits(160_000);

a_used_up_quota_is_on_the_curve_of_its_class:
    Case::new(RetryClass::Short).code(Code::ResourceExhausted).seed(60_000).waits(60_000 % 1_001);

a_conflict_is_one_whatever_its_code:
    Case::new(RetryClass::Conflict)
        .config(json!({"codes": {"resource-exhausted": {"base": "1m", "cap": "30m"}}}))
        .code(Code::ResourceExhausted).seed(200).waits(200);

medium_begins_at_half_a_minute:
    Case::new(RetryClass::Medium).seed(30_000).waits(30_000);

long_begins_at_two_minutes:
    Case::new(RetryClass::Long).seed(120_000).waits(120_000);

a_wait_without_a_failure_is_on_the_curve_of_its_class:
    Case::new(RetryClass::Short).seed(1_000).waits(1_000);
}
