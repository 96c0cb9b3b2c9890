//! Waits after failures that must not be tried again at once: logins that a server refused, because directories lock an
//! account after many failed logins, and operations in which a driver broke its contract.

use std::collections::BTreeMap;
use std::time::Duration;

use polity_core::contract::{Code, Failure};
use tokio::time::Instant;

/// The wait after a first failure. It doubles with each further failure in a row.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest wait.
const AGAIN_AT_MOST: Duration = Duration::from_secs(300);
/// The most waits that are kept. Beyond that, the wait that ends first is forgotten.
const MOST: usize = 10_000;

/// The present waits, by the name of what failed.
#[derive(Default)]
pub(crate) struct Waits(BTreeMap<String, Wait>);

struct Wait {
    failure: Failure,
    /// How many failures in a row came before this one.
    row: u32,
    until: Instant,
}

impl Waits {
    /// # Errors
    /// The last failure, if it is too early for another try.
    pub(crate) fn check(&self, name: &str, now: Instant) -> Result<(), Failure> {
        match self.0.get(name) {
            Some(wait) if now < wait.until => Err(wait.failure.clone()),
            _ => Ok(()),
        }
    }

    /// Learns how a login ended. A server that is down locks no account, so such a failure starts no wait.
    pub(crate) fn login_ended<T>(&mut self, login: &str, ended: &Result<T, Failure>, now: Instant) {
        match ended {
            Ok(_) => self.went_well(login),
            Err(failure) if failure.code == Code::Unauthenticated => self.failed(login, failure.clone(), now),
            Err(_) => {}
        }
    }

    /// Ends the wait after a success: the next failure counts as the first.
    pub(crate) fn went_well(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Starts the wait after a failure.
    pub(crate) fn failed(&mut self, name: &str, failure: Failure, now: Instant) {
        let row = self.0.get(name).map_or(0, |before| before.row.saturating_add(1));
        let wait = AGAIN.saturating_mul(1 << row.min(16)).min(AGAIN_AT_MOST);
        let until = now + wait;
        if self.0.len() >= MOST && !self.0.contains_key(name) {
            let soonest = self.0.iter().min_by_key(|(_, wait)| wait.until);
            if let Some(soonest) = soonest.map(|(name, _)| name.clone()) {
                self.0.remove(&soonest);
            }
        }
        self.0.insert(name.to_owned(), Wait { failure, row, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code) -> Result<(), Failure> {
        Err(Failure::new(code, "no"))
    }

    #[test]
    fn a_login_that_is_refused_waits_twice_as_long_each_time_and_never_longer_than_five_minutes() {
        let (mut waits, mut now) = (Waits::default(), Instant::now());
        for wait in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert_eq!(waits.check("a", now), Ok(()));
            waits.login_ended("a", &refused(Code::Unauthenticated), now);
            now += Duration::from_secs(wait) - Duration::from_millis(1);
            assert!(waits.check("a", now).is_err(), "{wait}");
            assert_eq!(waits.check("b", now), Ok(()), "another login");
            now += Duration::from_millis(1);
        }
        waits.login_ended("a", &Ok(()), now);
        waits.login_ended("a", &refused(Code::Unauthenticated), now);
        assert_eq!(waits.check("a", now + AGAIN), Ok(()), "the row has ended");
    }

    #[test]
    fn a_server_that_is_down_is_no_refusal() {
        let (mut waits, now) = (Waits::default(), Instant::now());
        waits.login_ended("a", &refused(Code::Unavailable), now);
        assert_eq!(waits.check("a", now), Ok(()));
    }

    #[test]
    fn no_more_than_so_many_waits_are_known() {
        let (mut waits, now) = (Waits::default(), Instant::now());
        for login in 0..=MOST {
            let now = now + Duration::from_millis(login as u64);
            waits.login_ended(&login.to_string(), &refused(Code::Unauthenticated), now);
        }
        assert_eq!(waits.0.len(), MOST);
        assert_eq!(waits.check("0", now), Ok(()), "the oldest is forgotten");
    }
}
