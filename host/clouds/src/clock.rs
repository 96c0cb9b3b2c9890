//! The host's clock.

use crate::cloud::BoxFuture;

/// The host's clock, which is virtual in standalone. The `since` of pending entries must come from the same
/// clock.
pub trait Clock: Send + Sync {
    /// The time now, in Unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Sleeps for this many milliseconds of this clock.
    fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()>;
}
