//! What the operations of a connection share: its driver and its server.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_clouds::Clock;
use polity_core::contract::driver::Manifest;
use polity_core::time::millis;
use polity_http::{Incoming, Outgoing, Pace, unix_of};
use polity_kube_rules::schema::Schema;
use polity_sandbox::driver::Driver;

use crate::connection::Connection;
use crate::traffic::{Calls, Throttled, Traffic};
use crate::unsealed::Unsealed;

/// The parts of a connection that each operation needs.
pub(crate) struct Reached {
    pub(crate) driver: Arc<Driver>,
    pub(crate) manifest: Manifest,
    pub(crate) connection: Connection,
    /// The catalogue's schemas of answers, by operation.
    pub(crate) answers: BTreeMap<String, Schema>,
    pub(crate) pace: Arc<Pace>,
    clock: Arc<dyn Clock>,
    /// How far the server's clock is ahead of the host's, in milliseconds.
    ahead: AtomicI64,
    spent: Mutex<BTreeMap<String, Spent>>,
    pub(crate) traffic: Traffic,
    pub(crate) unsealed: Unsealed,
    digests: RandomState,
}

/// The costs of the driver for one operation, summed over all its calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// How often the driver was called.
    pub steps: u64,
    /// Fuel of the sandbox.
    pub fuel: u64,
    /// Time on a thread.
    pub took: Duration,
}

impl Reached {
    /// A connection whose server has not answered yet.
    pub(crate) fn new(
        driver: Arc<Driver>,
        manifest: Manifest,
        connection: Connection,
        answers: BTreeMap<String, Schema>,
        pace: Arc<Pace>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Reached {
            driver,
            manifest,
            connection,
            answers,
            pace,
            clock,
            ahead: AtomicI64::new(0),
            spent: Mutex::default(),
            traffic: Traffic::default(),
            unsealed: Unsealed::default(),
            digests: RandomState::new(),
        }
    }

    /// Adds the cost of one step of the driver.
    pub(crate) fn spends(&self, operation: &str, fuel: u64, took: Duration) {
        polity_clouds::spend(fuel);
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = spent.entry(operation.to_owned()).or_default();
        spent.steps += 1;
        spent.fuel = spent.fuel.saturating_add(fuel);
        spent.took += took;
    }

    /// The costs of the driver so far, by operation.
    pub(crate) fn spent(&self) -> BTreeMap<String, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counts of requests, and what is throttled now.
    pub(crate) fn traffic(&self) -> (Calls, Option<Throttled>) {
        self.traffic.at(self.clock.now_ms())
    }

    /// Notes that a server has asked for fewer requests of a class, which is slower for so long.
    pub(crate) fn throttled(&self, class: String, slower_for: Duration) {
        let until = self.after(slower_for);
        self.traffic.throttled(Throttled { class, until });
    }

    /// When the class has its whole rate again that is throttled for longest, in Unix milliseconds.
    pub(crate) fn throttled_until(&self) -> Option<u64> {
        self.traffic().1.map(|throttled| throttled.until)
    }

    /// The time after this while, in Unix milliseconds.
    pub(crate) fn after(&self, time: Duration) -> u64 {
        self.clock.now_ms().saturating_add(millis(time))
    }

    /// Tells a request from others of this connection.
    pub(crate) fn digest(&self, request: &Outgoing) -> u64 {
        let Outgoing { method, body, .. } = request;
        self.digests
            .hash_one((method, request.encoded_path(), request.encoded_query(), body))
    }

    /// The server's time in Unix milliseconds.
    pub(crate) fn server_time(&self) -> u64 {
        self.clock
            .now_ms()
            .saturating_add_signed(self.ahead.load(Ordering::Relaxed))
    }

    /// Learns the server's time from the date of a response.
    pub(crate) fn learn_time(&self, response: &Incoming) {
        if let Some(said) = response.date() {
            let ahead = i64::try_from(said).unwrap_or(0) - i64::try_from(self.clock.now_ms()).unwrap_or(0);
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }
}

/// The pause that a server asks for, in seconds or as an HTTP date.
pub(crate) fn pause(said: &str, now: u64) -> Option<Duration> {
    let seconds = said.trim().parse().ok().map(Duration::from_secs);
    seconds.or_else(|| Some(Duration::from_millis(unix_of(said)?.saturating_sub(now))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_for_a_pause_in_seconds_or_until_a_date() {
        let noon = 1_795_435_200_000;
        for (said, expected) in [
            ("7", Some(7)),
            ("Mon, 23 Nov 2026 12:00:30 GMT", Some(30)),
            ("Mon, 23 Nov 2026 11:00:00 GMT", Some(0)),
            ("soon", None),
        ] {
            assert_eq!(pause(said, noon), expected.map(Duration::from_secs), "{said}");
        }
    }
}
