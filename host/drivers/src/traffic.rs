//! Counts the requests of a connection and their results, for its status.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a connection counts as throttled after a server has asked for fewer requests.
const THROTTLED_FOR: Duration = Duration::from_secs(60);

/// Counts requests.
#[derive(Default)]
pub(crate) struct Traffic(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    calls: Calls,
    /// The last response that asked for fewer requests: when it came, and the class of its request.
    throttled: Option<(Instant, String)>,
}

/// The number of requests of a connection, counted since the host opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Requests that read.
    pub reads: u64,
    /// Requests that change something.
    pub changes: u64,
    /// Requests of both kinds that got no response.
    pub unanswered: u64,
}

impl Traffic {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that was sent.
    pub(crate) fn sent(&self, is_read: bool, is_answered: bool) {
        let calls = &mut self.counted().calls;
        match is_read {
            true => calls.reads += 1,
            false => calls.changes += 1,
        }
        calls.unanswered += u64::from(!is_answered);
    }

    /// Notes that a server asked for fewer requests of a class.
    pub(crate) fn throttled(&self, class: &str) {
        self.counted().throttled = Some((Instant::now(), class.to_owned()));
    }

    /// The counts, and the class that is throttled now.
    pub(crate) fn now(&self) -> (Calls, Option<String>) {
        let counted = self.counted();
        let is_recent = |(at, _): &&(Instant, String)| at.elapsed() < THROTTLED_FOR;
        let throttled = counted.throttled.as_ref().filter(is_recent);
        (counted.calls, throttled.map(|(_, class)| class.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_throttled_for_a_minute_after_it_was_told_so() {
        let traffic = Traffic::default();
        traffic.sent(true, true);
        traffic.sent(false, false);
        traffic.throttled("ec2.example reads");
        let calls = Calls {
            reads: 1,
            changes: 1,
            unanswered: 1,
        };
        assert_eq!(traffic.now(), (calls, Some("ec2.example reads".to_owned())));
        tokio::time::advance(THROTTLED_FOR).await;
        assert_eq!(traffic.now(), (calls, None));
    }
}
