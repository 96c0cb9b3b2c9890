//! How fast a server is asked: a bucket of requests that fills with time, slower while the server asks for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The rate of one class of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second.
    pub per_second: f64,
    /// Requests at once, after a pause.
    pub burst: f64,
}

/// How much of its rate is left after a server has asked for less.
const SLOWER: f64 = 0.5;
/// The least share of its rate.
const SLOWEST: f64 = 0.05;
/// The share of the rate that comes back in a second without such an answer.
const RECOVERS: f64 = 0.02;

/// The buckets of a process, by what they are for: server, account, region, class.
#[derive(Default)]
pub struct Pace {
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

struct Bucket {
    /// Requests that may be sent now; negative if some wait already.
    left: f64,
    filled: Instant,
    /// The share of the rate that the server takes.
    share: f64,
    /// Nothing is sent before this moment.
    until: Instant,
}

impl Pace {
    /// How long a request of this class waits, which is counted from now on. `None` if that is longer than
    /// `longest`: then it is not counted.
    pub fn take(&self, class: &str, rate: Rate, longest: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(class.to_owned()).or_insert(Bucket {
            left: rate.burst,
            filled: now,
            share: 1.0,
            until: now,
        });
        let seconds = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.share = (bucket.share + RECOVERS * seconds).min(1.0);
        let speed = (rate.per_second * bucket.share).max(f64::MIN_POSITIVE);
        bucket.left = (bucket.left + speed * seconds).min(rate.burst);
        bucket.filled = now;
        let for_bucket = match bucket.left >= 1.0 {
            true => Duration::ZERO,
            false => Duration::try_from_secs_f64((1.0 - bucket.left) / speed).unwrap_or(Duration::MAX),
        };
        let wait = for_bucket.max(bucket.until.saturating_duration_since(now));
        if wait > longest {
            return None;
        }
        bucket.left -= 1.0;
        Some(wait)
    }

    /// Notes that the server asks for less: it throttles, perhaps for this long.
    pub fn slow_down(&self, class: &str, for_: Option<Duration>) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(class) {
            bucket.share = (bucket.share * SLOWER).max(SLOWEST);
            bucket.left = bucket.left.min(0.0);
            if let Some(until) = for_.and_then(|time| Instant::now().checked_add(time)) {
                bucket.until = bucket.until.max(until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 10.0,
        burst: 2.0,
    };
    const LONG: Duration = Duration::from_secs(3_600);

    fn millis(wait: Option<Duration>) -> Option<u128> {
        wait.map(|wait| wait.as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_burst_requests_go_at_their_rate() {
        let pace = Pace::default();
        let waits: Vec<_> = (0..4).map(|_| millis(pace.take("a", RATE, LONG))).collect();
        assert_eq!(waits, [Some(0), Some(0), Some(100), Some(200)]);
        assert_eq!(
            millis(pace.take("b", RATE, LONG)),
            Some(0),
            "another class has its own"
        );
        assert_eq!(pace.take("a", RATE, Duration::from_millis(200)), None);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(millis(pace.take("a", RATE, LONG)), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_throttles_is_asked_less_and_then_more_again() {
        let pace = Pace::default();
        pace.take("a", RATE, LONG);
        pace.slow_down("a", Some(Duration::from_secs(3)));
        assert_eq!(millis(pace.take("a", RATE, LONG)), Some(3_000));
        tokio::time::advance(Duration::from_secs(4)).await;
        let slow = (0..4).filter_map(|_| millis(pace.take("a", RATE, LONG))).last();
        assert!(slow > Some(200), "{slow:?}");
        tokio::time::advance(Duration::from_secs(600)).await;
        let fast: Vec<_> = (0..3).map(|_| millis(pace.take("a", RATE, LONG))).collect();
        assert_eq!(fast, [Some(0), Some(0), Some(100)]);
    }
}
