//! Time as the server sees it: one clock, handed in, because standalone runs in virtual time.

use std::{sync::Arc, time::SystemTime};

use jiff::Timestamp;

/// What the server asks for the time of creations and deletions.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The time of the clock; a clock outside the years that RFC 3339 can say answers the epoch.
pub(super) fn now(clock: &Clock) -> Timestamp {
    Timestamp::try_from(clock()).unwrap_or(Timestamp::UNIX_EPOCH)
}
