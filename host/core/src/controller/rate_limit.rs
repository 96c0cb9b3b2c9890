//! The rate limit of a key: how often its passes may start.

use std::time::Duration;

use crate::time::{Boot, millis};

/// A token bucket: `burst` passes at once, then one more after each `refill`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// In thousandths of a token, so that refilling needs no fractions.
    milli: u64,
    at: Boot,
}

impl Bucket {
    /// A full bucket.
    pub fn full(burst: u32, now: Boot) -> Self {
        Bucket {
            milli: u64::from(burst) * 1_000,
            at: now,
        }
    }

    /// Takes a token. The error is the time until there is one.
    pub fn take(&mut self, burst: u32, refill: Duration, now: Boot) -> Result<(), Duration> {
        let refill = millis(refill).max(1);
        let earned = millis(now - self.at).saturating_mul(1_000) / refill;
        self.milli = self.milli.saturating_add(earned).min(u64::from(burst) * 1_000);
        self.at = now;
        if self.milli >= 1_000 {
            self.milli -= 1_000;
            Ok(())
        } else {
            let wait = (1_000 - self.milli).saturating_mul(refill).div_ceil(1_000);
            Err(Duration::from_millis(wait))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_refill() {
        let second = Duration::from_secs(1);
        let mut bucket = Bucket::full(20, Boot(0));
        assert!((0..20).all(|_| bucket.take(20, second, Boot(0)).is_ok()));
        assert_eq!(bucket.take(20, second, Boot(0)), Err(second));
        assert_eq!(
            bucket.take(20, second, Boot(400)),
            Err(Duration::from_millis(600))
        );
        assert_eq!(bucket.take(20, second, Boot(1_000)), Ok(()));
    }
}
