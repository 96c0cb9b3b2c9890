//! Logins that a server refused. Directories lock accounts out that fail often, so none is tried again at once.

use std::collections::BTreeMap;
use std::time::Duration;

use polity_core::contract::{Code, Failure};
use tokio::time::Instant;

/// The wait after a first refusal. It doubles with each further one.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest such wait.
const AGAIN_AT_MOST: Duration = Duration::from_secs(300);
/// The most logins that are known. Beyond that the one that is waited for longest is forgotten.
const MOST: usize = 10_000;

/// The logins that were refused last, by what they were made of.
#[derive(Default)]
pub(crate) struct Refusals(BTreeMap<String, Refusal>);

struct Refusal {
    failure: Failure,
    /// How often in a row.
    row: u32,
    until: Instant,
}

impl Refusals {
    /// # Errors
    /// Why the login was refused, if it is too early to try it again.
    pub(crate) fn check(&self, login: &str, now: Instant) -> Result<(), Failure> {
        match self.0.get(login) {
            Some(refusal) if now < refusal.until => Err(refusal.failure.clone()),
            _ => Ok(()),
        }
    }

    /// Learns how a login ended. A server that is down locks nobody out, so that counts for nothing.
    pub(crate) fn ended<T>(&mut self, login: &str, ended: &Result<T, Failure>, now: Instant) {
        let failure = match ended {
            Ok(_) => {
                self.0.remove(login);
                return;
            }
            Err(failure) if failure.code == Code::Unauthenticated => failure.clone(),
            Err(_) => return,
        };
        let row = self.0.get(login).map_or(0, |before| before.row.saturating_add(1));
        let wait = AGAIN.saturating_mul(1 << row.min(16)).min(AGAIN_AT_MOST);
        let until = now + wait;
        if self.0.len() >= MOST && !self.0.contains_key(login) {
            let soonest = self.0.iter().min_by_key(|(_, refusal)| refusal.until);
            if let Some(soonest) = soonest.map(|(login, _)| login.clone()) {
                self.0.remove(&soonest);
            }
        }
        self.0.insert(login.to_owned(), Refusal { failure, row, until });
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
        let (mut refusals, mut now) = (Refusals::default(), Instant::now());
        for wait in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert_eq!(refusals.check("a", now), Ok(()));
            refusals.ended("a", &refused(Code::Unauthenticated), now);
            now += Duration::from_secs(wait) - Duration::from_millis(1);
            assert!(refusals.check("a", now).is_err(), "{wait}");
            assert_eq!(refusals.check("b", now), Ok(()), "another login");
            now += Duration::from_millis(1);
        }
        refusals.ended("a", &Ok(()), now);
        refusals.ended("a", &refused(Code::Unauthenticated), now);
        assert_eq!(refusals.check("a", now + AGAIN), Ok(()), "the row has ended");
    }

    #[test]
    fn a_server_that_is_down_is_no_refusal() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.ended("a", &refused(Code::Unavailable), now);
        assert_eq!(refusals.check("a", now), Ok(()));
    }

    #[test]
    fn no_more_than_so_many_refusals_are_known() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for login in 0..=MOST {
            let now = now + Duration::from_millis(login as u64);
            refusals.ended(&login.to_string(), &refused(Code::Unauthenticated), now);
        }
        assert_eq!(refusals.0.len(), MOST);
        assert_eq!(refusals.check("0", now), Ok(()), "the oldest is forgotten");
    }
}
