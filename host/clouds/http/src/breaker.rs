//! Servers that cannot be reached. After several failed connects in a row, other requests to the server fail at once, and one
//! request at a time finds out whether the server is back. A connection with a server that never answers is no failed connect.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// After so many failed connects or TLS handshakes in a row, other requests fail at once.
const IN_A_ROW: u32 = 5;
/// The time until one request tries the address again. It is short, because an appliance that boots is tried until it answers.
const REST: Duration = Duration::from_secs(2);
/// The most addresses that are remembered. The addresses of appliances come and go.
const MOST: usize = 1_024;

/// The addresses at which no server was reached.
#[derive(Default)]
pub(crate) struct Breaker {
    away: Mutex<BTreeMap<String, Away>>,
}

struct Away {
    /// How many connects in a row failed.
    in_a_row: u32,
    /// No request is sent to the address before this moment.
    rests_until: Instant,
}

impl Breaker {
    fn away(&self) -> MutexGuard<'_, BTreeMap<String, Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request may be sent to this address now. After a rest, the first request may; its result decides for the
    /// others.
    pub(crate) fn lets_through(&self, host: &str) -> bool {
        let now = Instant::now();
        match self.away().get_mut(host) {
            Some(away) if away.in_a_row >= IN_A_ROW => {
                let may = now >= away.rests_until;
                if may {
                    away.rests_until = now + REST;
                }
                may
            }
            _ => true,
        }
    }

    /// Notes whether a request got a connection to the server.
    pub(crate) fn found(&self, host: &str, is_there: bool) {
        let mut away = self.away();
        if is_there {
            away.remove(host);
            return;
        }
        let now = Instant::now();
        if away.len() >= MOST && !away.contains_key(host) {
            away.retain(|_, away| away.rests_until > now);
        }
        let away = away.entry(host.to_owned()).or_insert(Away {
            in_a_row: 0,
            rests_until: now,
        });
        away.in_a_row = away.in_a_row.saturating_add(1);
        away.rests_until = now + REST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_is_tried_by_one_at_a_time_and_back_at_once() {
        let breaker = Breaker::default();
        for _ in 1..IN_A_ROW {
            breaker.found("a", false);
            assert!(
                breaker.lets_through("a"),
                "the server may be away for a moment only"
            );
        }
        breaker.found("a", false);
        assert!(!breaker.lets_through("a"));
        assert!(breaker.lets_through("b"), "another address");
        tokio::time::advance(REST).await;
        assert!(breaker.lets_through("a"), "one finds out");
        assert!(!breaker.lets_through("a"), "the others wait for it");
        breaker.found("a", false);
        tokio::time::advance(REST / 2).await;
        assert!(!breaker.lets_through("a"));
        tokio::time::advance(REST).await;
        assert!(breaker.lets_through("a"));
        breaker.found("a", true);
        assert!(
            breaker.lets_through("a") && breaker.lets_through("a"),
            "it is back"
        );
        breaker.found("a", false);
        assert!(breaker.lets_through("a"), "a row begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_nobody_asks_any_more_are_forgotten() {
        let breaker = Breaker::default();
        for number in 0..MOST {
            breaker.found(&number.to_string(), false);
        }
        tokio::time::advance(REST).await;
        breaker.found("new", false);
        assert_eq!(breaker.away().len(), 1);
    }
}
