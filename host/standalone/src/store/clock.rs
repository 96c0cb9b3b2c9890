//! The server's time. The clock is passed in, because standalone runs in virtual time.

use std::{sync::Arc, time::SystemTime};

use jiff::Timestamp;

/// Returns the time of creations and deletions.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The time of the clock. If RFC 3339 cannot express it, the epoch is returned.
pub(super) fn now(clock: &Clock) -> Timestamp {
    Timestamp::try_from(clock()).unwrap_or(Timestamp::UNIX_EPOCH)
}
