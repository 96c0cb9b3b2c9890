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
            seed: 7,
            config: json!({}).to_string(),
        },
        wait_ms: 0,
    }
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

a_conflict_is_tried_again_at_once:
    trial(RetryClass::Conflict).waits(200);

short_is_five_seconds:
    trial(RetryClass::Short).waits(5_000);

medium_is_three_minutes:
    trial(RetryClass::Medium).waits(180_000);

long_is_ten_minutes:
    trial(RetryClass::Long).waits(600_000);

an_ordinary_failure_waits_as_long_as_its_class:
    trial(RetryClass::Medium).code(Code::Unavailable).waits(180_000);

the_periods_do_not_grow:
    trial(RetryClass::Short).code(Code::Unavailable).attempt(100).waits(5_000);

a_used_up_quota_waits_long_in_every_class:
    trial(RetryClass::Short).code(Code::ResourceExhausted).waits(600_000);

a_used_up_quota_waits_as_long_as_long_is:
    trial(RetryClass::Medium).code(Code::ResourceExhausted).config(json!({"long": "1h"})).waits(3_600_000);

a_used_up_quota_may_have_a_period_of_its_own:
    trial(RetryClass::Short).code(Code::ResourceExhausted).config(json!({"resourceExhausted": "90s"})).waits(90_000);

a_conflict_is_one_even_if_a_quota_is_used_up:
    trial(RetryClass::Conflict).code(Code::ResourceExhausted).waits(200);

each_period_is_the_bindings_conflict:
    trial(RetryClass::Conflict).config(json!({"conflict": "1s"})).waits(1_000);

each_period_is_the_bindings_short:
    trial(RetryClass::Short).config(json!({"short": "2s"})).waits(2_000);

each_period_is_the_bindings_medium:
    trial(RetryClass::Medium).config(json!({"medium": "1m30s"})).waits(90_000);

each_period_is_the_bindings_long:
    trial(RetryClass::Long).config(json!({"long": "2h"})).waits(7_200_000);
}
