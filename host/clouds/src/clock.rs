//! The host's clock.

use crate::cloud::BoxFuture;

/// The host's clock, which in standalone is virtual. The `since` of pending entries must be of the same clock.
pub trait Clock: Send + Sync {
    /// Unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Passes so many milliseconds of this clock.
    fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()>;
}
