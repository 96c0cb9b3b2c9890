//! The table of cases: what a pass ended with, and how long the policy waits then.
//!
//! It is data. Two drivers run it and must find the same: the tests of this crate run the policy natively, those of
//! the host as a component in the sandbox. [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::contract::RetryTrial;
use polity_sdk::{Code, RetryClass};
use serde_json::{Value, json};

/// One decision.
#[derive(Clone, Debug)]
pub struct Case {
    trial: RetryTrial,
    wait_ms: u64,
}

impl Case {
    /// What the policy is asked.
    pub fn trial(&self) -> RetryTrial {
        self.trial.clone()
    }

    /// Requires that the policy waits as long as the table says.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self, wait_ms: u64) {
        assert_eq!(wait_ms, self.wait_ms, "milliseconds for {:?}", self.trial);
    }

    fn code(mut self, code: Code) -> Self {
        self.trial.code = Some(code);
        self
    }

    fn config(mut self, config: Value) -> Self {
        self.trial.config = config.to_string();
        self
    }

    fn attempt(mut self, attempt: u32) -> Self {
        self.trial.attempt = attempt;
        self
    }

    /// How far up between nothing and the longest wait the seed draws.
    fn seed(mut self, seed: u64) -> Self {
        self.trial.seed = seed;
        self
    }

    fn waits(mut self, ms: u64) -> Self {
        self.wait_ms = ms;
        self
    }
}

fn trial(class: RetryClass) -> Case {
    Case {
        trial: RetryTrial {
            class,
            code: None,
            attempt: 0,
            since: 0,
            retry_after: None,
            seed: 0,
            config: json!({}).to_string(),
        },
        wait_ms: 0,
    }
}

/// A short retry after a failure, on the curve 1 s, 2 s, 4 s, 8 s, with a minute of rest after four tries.
fn failed(attempt: u32) -> Case {
    let short = json!({"base": "1s", "cap": "8s", "tries": 4, "coolDown": "1m"});
    let mut classes = json!({});
    classes["short"] = short;
    trial(RetryClass::Short)
        .code(Code::Unavailable)
        .attempt(attempt)
        .config(json!({"classes": classes}))
}

/// Declares the cases, and the macro that makes a test of each.
macro_rules! cases {
    ($dollar:tt $($name:ident: $case:expr;)+) => {
        $(
            #[doc = concat!("Case `", stringify!($name), "`.")]
            pub fn $name() -> Case {
                $case
            }
        )+

        /// Makes a test of each case, which calls this function with it.
        #[macro_export]
        macro_rules! each_case {
            ($dollar driver:path) => {
                $(
                    #[test]
                    fn $name() {
                        $dollar driver($dollar crate::cases::$name());
                    }
                )+
            };
        }
    };
}

cases! { $

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

the_floor_is_the_bindings:
    trial(RetryClass::Short).config(json!({"floor": "2s"})).waits(2_000);

after_the_tries_comes_the_cool_down:
    failed(4).seed(500).waits(60_500);

after_the_cool_down_it_begins_anew:
    failed(5).seed(1_000).waits(1_000);

without_tries_there_is_no_cool_down:
    trial(RetryClass::Conflict).attempt(u32::MAX).seed(5_000).waits(5_000);

no_tries_at_all_is_nothing_but_cool_down:
    trial(RetryClass::Short)
        .config(json!({"codes": {"internal": {"base": "1s", "cap": "1s", "tries": 0, "coolDown": "10m"}}}))
        .code(Code::Internal).waits(600_000);

a_code_may_have_a_curve_of_its_own:
    trial(RetryClass::Short)
        .config(json!({"codes": {"unauthenticated": {"base": "20s", "cap": "1h"}}}))
        .code(Code::Unauthenticated).attempt(3).seed(160_000).waits(160_000);

a_used_up_quota_has_one_by_default:
    trial(RetryClass::Short).code(Code::ResourceExhausted).seed(60_000).waits(60_000);

a_conflict_is_one_whatever_its_code:
    trial(RetryClass::Conflict).code(Code::ResourceExhausted).seed(200).waits(200);

medium_begins_at_half_a_minute:
    trial(RetryClass::Medium).seed(30_000).waits(30_000);

long_begins_at_two_minutes:
    trial(RetryClass::Long).seed(120_000).waits(120_000);

a_wait_without_a_failure_is_on_the_curve_of_its_class:
    trial(RetryClass::Short).seed(1_000).waits(1_000);
}
