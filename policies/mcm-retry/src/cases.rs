//! The table of cases: how a pass ended, and how long the policy waits then.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component in the sandbox. [`each_case!`](crate::each_case) makes a test
//! of each case.

use std::time::Duration;

use polity_sdk::{Code, RetryClass, Wait};
use serde_json::json;

pub use polity_sdk::test::RetryCase as Case;

polity_sdk::cases! { $ each_case of mcm_retry::cases;

a_conflict_is_tried_again_at_once:
    Case::new(RetryClass::Conflict).waits(200);

short_is_five_seconds:
    Case::new(RetryClass::Short).waits(5_000);

medium_is_three_minutes:
    Case::new(RetryClass::Medium).waits(180_000);

long_is_ten_minutes_or_until_an_object_changes_that_the_pass_used:
    Case::new(RetryClass::Long).decides(on_change(600_000));

an_ordinary_failure_waits_as_long_as_its_class:
    Case::new(RetryClass::Medium).code(Code::Unavailable).waits(180_000);

no_wait_is_shorter_than_the_other_side_asks_for:
    Case::new(RetryClass::Short).code(Code::Unavailable).retry_after(20_000).waits(20_000);

a_longer_period_than_the_other_side_asks_for_stands:
    Case::new(RetryClass::Medium).code(Code::Unavailable).retry_after(20_000).waits(180_000);

what_waits_for_a_change_waits_as_long_as_the_other_side_asks_for:
    Case::new(RetryClass::Long).retry_after(3_600_000).decides(on_change(3_600_000));

the_periods_do_not_grow:
    Case::new(RetryClass::Short).code(Code::Unavailable).attempt(100).waits(5_000);

a_used_up_quota_waits_as_long_as_its_class_short:
    Case::new(RetryClass::Short).code(Code::ResourceExhausted).waits(5_000);

a_used_up_quota_waits_as_long_as_its_class_medium:
    Case::new(RetryClass::Medium).code(Code::ResourceExhausted).config(json!({"long": "1h"})).waits(180_000);

a_used_up_quota_waits_as_long_as_its_class_long:
    Case::new(RetryClass::Long).code(Code::ResourceExhausted).decides(on_change(600_000));

a_used_up_quota_may_have_a_period_of_its_own:
    Case::new(RetryClass::Short).code(Code::ResourceExhausted).config(json!({"resourceExhausted": "90s"})).waits(90_000);

a_conflict_is_one_even_if_a_quota_is_used_up:
    Case::new(RetryClass::Conflict).code(Code::ResourceExhausted).config(json!({"resourceExhausted": "90s"})).waits(200);

each_period_is_the_bindings_conflict:
    Case::new(RetryClass::Conflict).config(json!({"conflict": "1s"})).waits(1_000);

each_period_is_the_bindings_short:
    Case::new(RetryClass::Short).config(json!({"short": "2s"})).waits(2_000);

each_period_is_the_bindings_medium:
    Case::new(RetryClass::Medium).config(json!({"medium": "1m30s"})).waits(90_000);

each_period_is_the_bindings_long:
    Case::new(RetryClass::Long).config(json!({"long": "2h"})).decides(on_change(7_200_000));
}

/// The wait ends when an object changes that the pass used, and after this many milliseconds.
fn on_change(ms: u64) -> Wait {
    Wait::on_change_within(Duration::from_millis(ms))
}
