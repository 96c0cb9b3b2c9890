//! How long until the next try, where no retry policy says so, and the seed that retry policies get.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::contract::{RetryClass, RetryRequest};
use crate::time::millis;

/// After a conflict: looking again helps at once.
const CONFLICT: Duration = Duration::from_millis(200);
/// The longest rung of the ladder.
const LONGEST: Duration = Duration::from_mins(10);
/// The longest wait of an object whose policy faults.
const LONGEST_QUARANTINE: Duration = Duration::from_mins(5);
/// The first wait of a `short` retry, and of whatever else begins to be tried again.
const SHORT: Duration = Duration::from_secs(1);
/// The first wait of a `medium` retry.
const MEDIUM: Duration = Duration::from_secs(30);

/// How long a key waits, as it was decided in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// A time. Only something that is new of its object ends the wait earlier.
    After(Duration),
    /// Until something changes that its last pass saw, at the latest this long.
    OnChange(Duration),
}

impl Delay {
    /// After this the key passes again, whatever else happens.
    pub(crate) fn longest(self) -> Duration {
        match self {
            Delay::After(wait) | Delay::OnChange(wait) => wait,
        }
    }
}

/// How long to wait without a retry policy: after a conflict 200 ms; otherwise 1 s, 30 s or 10 min by class,
/// doubled with each attempt up to 10 min, of which the seed takes up to a quarter off. Never less than the other
/// side wished.
pub fn default_wait(request: &RetryRequest) -> Duration {
    let rung = |first| ladder(first, LONGEST, request.attempt, request.seed);
    let wait = match request.class {
        RetryClass::Conflict => CONFLICT,
        RetryClass::Short => rung(SHORT),
        RetryClass::Medium => rung(MEDIUM),
        RetryClass::Long => rung(LONGEST),
    };
    wait.max(wished(request))
}

/// How long the other side wishes to be left alone.
pub(crate) fn wished(request: &RetryRequest) -> Duration {
    Duration::from_millis(request.retry_after().unwrap_or(0))
}

/// How long to wait after so many failed reads in a row, which no retry policy is asked about: as after a `short`
/// retry.
pub fn after_failures(row: u32, uid: &str, wished: Option<Duration>) -> Duration {
    let wait = ladder(SHORT, LONGEST, row.saturating_sub(1), seed(uid, row));
    wait.max(wished.unwrap_or_default())
}

/// How long until an object is tried again whose policy broke its contract so many times in a row.
pub fn quarantine(row: u32, uid: &str) -> Duration {
    ladder(SHORT, LONGEST_QUARANTINE, row.saturating_sub(1), seed(uid, row))
}

/// A first wait, doubled with each attempt up to the longest, of which the seed takes up to a quarter off.
fn ladder(first: Duration, longest: Duration, attempt: u32, seed: u64) -> Duration {
    let doubled = first.saturating_mul(1 << attempt.min(30));
    let full = millis(doubled.min(longest));
    Duration::from_millis(full - seed % (full / 4))
}

/// The only randomness a retry policy gets: equal for equal uid and attempt.
pub fn seed(uid: &str, attempt: u32) -> u64 {
    let hash = Sha256::new_with_prefix(uid.as_bytes())
        .chain_update(attempt.to_le_bytes())
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Code, Failure};
    use crate::reconcile::fixture::retry_request;

    #[test]
    fn waits_double_from_where_their_class_begins_up_to_ten_minutes() {
        for (class, first) in [
            (RetryClass::Short, 1_000),
            (RetryClass::Medium, 30_000),
            (RetryClass::Long, 600_000),
        ] {
            for attempt in 0..40 {
                let full = (first << attempt.min(12)).min(600_000);
                let wait = millis(default_wait(&retry_request(class, attempt)));
                assert!(
                    wait <= full && wait > full * 3 / 4,
                    "{class:?} attempt {attempt}: {wait}"
                );
            }
        }
        let conflict = default_wait(&retry_request(RetryClass::Conflict, 9));
        assert_eq!(conflict, Duration::from_millis(200));
    }

    #[test]
    fn a_quarantine_doubles_up_to_five_minutes_and_never_ends_in_giving_up() {
        for row in 1..40 {
            let full = (1_000u64 << (row - 1).min(9)).min(300_000);
            let wait = millis(quarantine(row, "u"));
            assert!(wait <= full && wait > full * 3 / 4, "fault {row}: {wait}");
        }
    }

    #[test]
    fn a_wish_of_the_other_side_is_never_undercut() {
        let wish = |retry_after| RetryRequest {
            failure: Some(Failure {
                retry_after,
                ..Failure::new(Code::ResourceExhausted, "said the other side")
            }),
            ..retry_request(RetryClass::Short, 0)
        };
        let minute = Duration::from_mins(1);
        assert_eq!(default_wait(&wish(Some(60_000))), minute);
        assert!(default_wait(&wish(None)) <= SHORT);
        assert_eq!(after_failures(1, "u", Some(minute)), minute);
    }
}
