//! The wait before a retry if no retry policy decides it, and the seed for retry policies.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::contract::{RetryClass, RetryRequest};
use crate::time::millis;

/// The first wait after a conflict. It is short, because reading the object again is normally enough.
const CONFLICT: Duration = Duration::from_millis(200);
/// The longest wait.
const LONGEST: Duration = Duration::from_mins(10);
/// The first wait of a `short` retry: also of a failed read, and of a quarantine.
const SHORT: Duration = Duration::from_secs(1);
/// The first wait of a `medium` retry.
const MEDIUM: Duration = Duration::from_secs(30);

/// The wait of a key, as finally decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Wait this long. Only news about the object itself ends the wait earlier.
    After(Duration),
    /// Wait until something changes that the last pass used, but not longer than this.
    OnChange(Duration),
}

impl Delay {
    /// The time after which the key gets a pass in any case.
    pub(crate) fn longest(self) -> Duration {
        match self {
            Delay::After(wait) | Delay::OnChange(wait) => wait,
        }
    }
}

/// The wait without a retry policy: 200 ms after a conflict, otherwise 1 s, 30 s or 10 min by class. The wait doubles
/// with each attempt up to 10 min, and the seed takes off up to a quarter, so that many keys do not retry at the same
/// moment. It is never shorter than the other side asks for.
pub fn default_wait(request: &RetryRequest) -> Duration {
    let first = match request.class {
        RetryClass::Conflict => CONFLICT,
        RetryClass::Short => SHORT,
        RetryClass::Medium => MEDIUM,
        RetryClass::Long => LONGEST,
    };
    let doubled = first.saturating_mul(1 << request.attempt.min(30));
    let full = millis(doubled.min(LONGEST));
    let wished = request.retry_after().unwrap_or(0);
    Duration::from_millis((full - request.seed % (full / 4)).max(wished))
}

/// The only randomness of a retry policy. It is equal for equal uid and attempt, so that recordings replay.
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
            (RetryClass::Conflict, 200),
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
    }
}
