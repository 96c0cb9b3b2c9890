//! How long until the next try, where no retry policy says so, and the seed that retry policies get.

use sha2::{Digest, Sha256};

use crate::contract::{RetryClass, Trial};

/// Milliseconds to wait without a retry policy: a conflict 200 ms; otherwise 1 s doubled with each attempt up to
/// 5 min, of which the seed takes up to a quarter off. Never less than the other side wished.
pub fn default_wait(trial: &Trial) -> u64 {
    let wait = match trial.class {
        RetryClass::Conflict => 200,
        _ => {
            let full = (1_000u64 << trial.attempt.min(9)).min(300_000);
            full - trial.seed % (full / 4)
        }
    };
    wait.max(trial.retry_after.unwrap_or(0))
}

/// Milliseconds to wait after so many failures in a row of something that no retry policy is asked about: as after a
/// `short` retry.
pub fn after_failures(row: u32, uid: &str, retry_after: Option<u64>) -> u64 {
    default_wait(&Trial {
        class: RetryClass::Short,
        code: None,
        attempt: row.saturating_sub(1),
        since: 0,
        retry_after,
        seed: seed(uid, row),
        config: "null".into(),
    })
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

    fn trial(class: RetryClass, attempt: u32) -> Trial {
        Trial {
            class,
            code: None,
            attempt,
            since: 0,
            retry_after: None,
            seed: seed("u", attempt),
            config: "null".into(),
        }
    }

    #[test]
    fn waits_double_up_to_five_minutes() {
        for attempt in 0..40 {
            let full = (1_000u64 << attempt.min(9)).min(300_000);
            let wait = default_wait(&trial(RetryClass::Short, attempt));
            assert!(wait <= full && wait > full * 3 / 4, "attempt {attempt}: {wait}");
        }
        assert_eq!(default_wait(&trial(RetryClass::Conflict, 9)), 200);
    }

    #[test]
    fn a_wish_of_the_other_side_is_never_undercut() {
        let wished = Trial {
            retry_after: Some(60_000),
            ..trial(RetryClass::Short, 0)
        };
        assert_eq!(default_wait(&wished), 60_000);
    }
}
