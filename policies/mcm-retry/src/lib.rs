//! How long until the next try, as the machine controller of the specification has it: fixed periods.
//!
//! The policies that ask for a retry say of which class it is; the periods are this policy's alone, so that changing one
//! is an edit of the binding, and changing the way of waiting a swap of this component.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod config;
pub mod edges;

use std::time::Duration;

use polity_sdk::{Code, RetryClass, Trial};

pub use config::Config;
pub use edges::manifest;

/// How long until the next try? The other side's wish is not looked at: the host never waits less.
#[polity_sdk::policy(retry)]
pub fn decide(trial: Trial<Config>) -> Duration {
    let config = &trial.config;
    let period = match (trial.class, trial.code) {
        // Looking again helps at once, whatever the failure.
        (RetryClass::Conflict, _) => config.conflict,
        (_, Some(Code::ResourceExhausted)) => config.resource_exhausted.unwrap_or(config.long),
        (RetryClass::Short, _) => config.short,
        (RetryClass::Medium, _) => config.medium,
        (RetryClass::Long, _) => config.long,
    };
    period.into()
}
