//! Decides how long an object waits until the next try, as the machine controller of the specification does: fixed
//! periods.
//!
//! A policy that asks for a retry names only the class of the retry. This policy alone owns the periods. So an edit of
//! the binding changes a period, and another component changes the way of waiting.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod config;
pub mod edges;

use std::time::Duration;

use polity_sdk::{Code, RetryClass, RetryRequest, Wait};

pub use config::Config;
pub use edges::manifest;

/// Decides the wait until the next try. It is never shorter than the other side asks for.
#[polity_sdk::policy(retry)]
pub fn decide(request: RetryRequest<Config>) -> Wait {
    let config = &request.config;
    let of_class = match request.class {
        // A policy that broke its contract does so again, as a rule, until it is replaced.
        RetryClass::Short if request.operation() == Some("quarantine") => config.medium,
        RetryClass::Conflict => config.conflict,
        RetryClass::Short => config.short,
        RetryClass::Medium => config.medium,
        RetryClass::Long => config.long,
    };
    // The lifecycle policy chooses the class, because it knows what failed. After a conflict, reading again is
    // enough, whatever the failure was.
    let exhausted = request.code() == Some(Code::ResourceExhausted) && request.class != RetryClass::Conflict;
    let of_code = config.resource_exhausted.filter(|_| exhausted);
    let wait = Duration::from(of_code.unwrap_or(of_class)).max(request.retry_after());
    match request.class {
        // What a person must change may be an object that the pass looked at, such as a class or a node.
        RetryClass::Long => Wait::on_change_within(wait),
        _ => Wait::after(wait),
    }
}
