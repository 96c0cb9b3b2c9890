//! Decides how long an object waits until the next try: exponential backoff with full jitter, and a cool-down. Each
//! class of retry has a curve; a binding can also set a curve for a failure code.
//!
//! The longest wait doubles with each try up to a cap. The actual wait is anywhere between zero and the longest wait,
//! so objects that failed together do not come back together. After a number of tries in a row comes a cool-down. Then
//! the curve begins anew, because the cause of the failure may be gone. All randomness comes from the seed that the
//! host supplies.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod config;
pub mod edges;

use std::time::Duration;

use polity_sdk::{Period, RetryClass, RetryRequest};

pub use config::{Classes, Config, Curve};
pub use edges::manifest;

/// Decides the wait until the next try. It is never shorter than the other side asks for.
#[polity_sdk::policy(retry)]
pub fn decide(request: RetryRequest<Config>) -> Duration {
    let config = &request.config;
    let of_class = match request.class {
        RetryClass::Conflict => &config.classes.conflict,
        RetryClass::Short => &config.classes.short,
        RetryClass::Medium => &config.classes.medium,
        RetryClass::Long => &config.classes.long,
    };
    // After a conflict, reading again is enough, whatever the failure was.
    let code = request.code().filter(|_| request.class != RetryClass::Conflict);
    let of_code = code.and_then(|code| config.codes.get(code.as_str()));
    of_code
        .unwrap_or(of_class)
        .wait(request.attempt, request.seed)
        .max(config.floor.into())
        .max(request.retry_after())
}

impl Curve {
    /// The wait after this many tries in a row.
    fn wait(&self, attempt: u32, seed: u64) -> Duration {
        let nth = self
            .tries
            .map_or(attempt, |tries| attempt % tries.saturating_add(1));
        if self.tries == Some(nth) {
            // The end of the cool-down is spread over the length of the longest first wait.
            return Duration::from(self.cool_down) + Duration::from_millis(between(seed, self.ceiling(0)));
        }
        Duration::from_millis(between(seed, self.ceiling(nth)))
    }

    /// The longest wait after the nth try, in milliseconds.
    fn ceiling(&self, nth: u32) -> u64 {
        let doubled = millis(self.base).saturating_mul(1u64.checked_shl(nth).unwrap_or(u64::MAX));
        doubled.min(millis(self.cap))
    }
}

/// A number between 0 and the ceiling, chosen by the seed.
fn between(seed: u64, ceiling: u64) -> u64 {
    seed % ceiling.saturating_add(1)
}

fn millis(period: Period) -> u64 {
    u64::try_from(Duration::from(period).as_millis()).unwrap_or(u64::MAX)
}
