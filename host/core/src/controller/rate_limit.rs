//! Fairness: how often a key may pass, how many passes a tenant may have in flight.

/// A token bucket: so many passes in a burst, then one more each `refill` milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// In thousandths of a token, so that refilling needs no fractions.
    milli: u64,
    at: u64,
}

impl Bucket {
    /// A full bucket.
    pub fn full(burst: u32, now: u64) -> Self {
        Bucket {
            milli: u64::from(burst) * 1_000,
            at: now,
        }
    }

    /// Takes a token, or says in how many milliseconds there is one.
    pub fn take(&mut self, burst: u32, refill: u64, now: u64) -> Result<(), u64> {
        let refill = refill.max(1);
        let earned = (now - self.at.min(now)).saturating_mul(1_000) / refill;
        self.milli = self.milli.saturating_add(earned).min(u64::from(burst) * 1_000);
        self.at = now;
        match self.milli >= 1_000 {
            true => {
                self.milli -= 1_000;
                Ok(())
            }
            false => Err((1_000 - self.milli).saturating_mul(refill).div_ceil(1_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_refill() {
        let mut bucket = Bucket::full(20, 0);
        assert!((0..20).all(|_| bucket.take(20, 1_000, 0).is_ok()));
        assert_eq!(bucket.take(20, 1_000, 0), Err(1_000));
        assert_eq!(bucket.take(20, 1_000, 400), Err(600));
        assert_eq!(bucket.take(20, 1_000, 1_000), Ok(()));
    }
}
