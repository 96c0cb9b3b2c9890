//! Counts the requests of a connection and their results, for its status.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts requests.
#[derive(Default)]
pub(crate) struct Traffic(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    calls: Calls,
    throttled: Option<Throttled>,
}

/// A server has asked for fewer requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// The class of requests: server, place, and reads, changes or creates.
    pub class: String,
    /// When it has its whole rate again if the server does not ask once more, in Unix milliseconds.
    pub until: u64,
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
        if is_read {
            calls.reads += 1;
        } else {
            calls.changes += 1;
        }
        calls.unanswered += u64::from(!is_answered);
    }

    /// Notes that a server asked for fewer requests of a class. Of several classes the one counts that is slowed down for longest.
    pub(crate) fn throttled(&self, throttled: Throttled) {
        let known = &mut self.counted().throttled;
        if known.as_ref().is_none_or(|known| known.until <= throttled.until) {
            *known = Some(throttled);
        }
    }

    /// The counts, and what is throttled at this time.
    pub(crate) fn at(&self, now: u64) -> (Calls, Option<Throttled>) {
        let counted = self.counted();
        let throttled = counted.throttled.clone();
        (counted.calls, throttled.filter(|throttled| now < throttled.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_throttled_for_as_long_as_a_class_of_its_requests_is() {
        let traffic = Traffic::default();
        traffic.sent(true, true);
        traffic.sent(false, false);
        let throttled = |class: &str, until| Throttled {
            class: class.to_owned(),
            until,
        };
        traffic.throttled(throttled("ec2 creates", 40_000));
        traffic.throttled(throttled("ec2 reads", 25_000));
        let calls = Calls {
            reads: 1,
            changes: 1,
            unanswered: 1,
        };
        assert_eq!(
            traffic.at(39_999),
            (calls, Some(throttled("ec2 creates", 40_000)))
        );
        assert_eq!(traffic.at(40_000), (calls, None));
    }
}
