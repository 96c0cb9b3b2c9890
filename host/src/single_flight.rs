//! Orders the work on untrusted bytes: when a piece of work runs, how much time it gets, and when it is tried
//! again.
//!
//! # Guarantees
//!
//! - A piece of work runs once at a time. If it was stopped, it does not run again before its wait is over.
//! - Work that was stopped has a place of its own and more time. It never comes before new work.
//!
//! # Caveats
//!
//! New work waits while [`FIRST`] other pieces are under way, at most for the time limit of a first try.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::display::duration;

/// The places for new work. Each may use as much memory as compiling takes.
const FIRST: usize = 4;
/// The places for work that was stopped before.
const AGAIN: usize = 1;
/// The wait after work was stopped for the first time. It doubles each time.
const SHORTEST: Duration = Duration::from_secs(10);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(600);

/// Whether a piece of work was stopped before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// The work is new.
    First,
    /// The work was stopped before.
    Again,
}

/// Why work ended without a result.
pub(crate) enum Ended {
    /// The work is refused: another try would end the same.
    Refused(anyhow::Error),
    /// The work was stopped by its limits or by the machine: another try may succeed.
    Stopped(String),
}

/// The error for work that was stopped. It is tried again at `at`.
#[derive(Debug)]
pub(crate) struct Later {
    pub(crate) at: Instant,
    why: String,
}

impl std::fmt::Display for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Later {}

/// The work under way and the work that waits.
#[derive(Default)]
pub(crate) struct SingleFlight {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The names of the work under way.
    busy: BTreeSet<String>,
    first: usize,
    again: usize,
    stopped: BTreeMap<String, Stopped>,
}

/// Work whose last try was stopped.
struct Stopped {
    times: u32,
    until: Instant,
    why: String,
}

impl State {
    /// The places in use for this kind of work, and how many there are.
    fn places(&mut self, tried: Try) -> (&mut usize, usize) {
        match tried {
            Try::First => (&mut self.first, FIRST),
            Try::Again => (&mut self.again, AGAIN),
        }
    }

    fn stopped(&mut self, work: &str, why: &str) -> Later {
        let (now, before) = (Instant::now(), self.stopped.get(work));
        let times = before.map_or(0, |stopped| stopped.times).saturating_add(1);
        let wait = SHORTEST.saturating_mul(1 << (times - 1).min(16)).min(LONGEST);
        let in_words = duration(wait);
        let stopped = Stopped {
            times,
            until: now + wait,
            why: format!("{why}; the next try is in {in_words}"),
        };
        let later = stopped.later();
        // Work that nobody asked for again long after its wait is forgotten.
        self.stopped.retain(|_, stopped| stopped.until + LONGEST > now);
        self.stopped.insert(work.to_owned(), stopped);
        later
    }
}

impl Stopped {
    fn later(&self) -> Later {
        Later {
            at: self.until,
            why: self.why.clone(),
        }
    }
}

/// The use of a place. It ends when the value is dropped.
struct Flight<'a> {
    flights: &'a SingleFlight,
    work: &'a str,
    tried: Try,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.flights.state();
        state.busy.remove(self.work);
        *state.places(self.tried).0 -= 1;
        self.flights.ended.notify_all();
    }
}

impl SingleFlight {
    /// Runs work of this name as soon as a place is free. The error is a [`Later`] if the work was stopped.
    pub(crate) fn run<T>(
        &self,
        work: &str,
        act: impl FnOnce(Try) -> Result<T, Ended>,
    ) -> Result<T, anyhow::Error> {
        let flight = self.wait(work)?;
        let ended = act(flight.tried);
        // The result is entered before the flight is dropped, so that the next caller with the same work sees
        // it.
        let mut state = self.state();
        let came_to = match ended {
            Err(Ended::Stopped(why)) => Err(state.stopped(work, &why).into()),
            ended => {
                state.stopped.remove(work);
                ended.map_err(|ended| match ended {
                    Ended::Refused(e) => e,
                    Ended::Stopped(why) => anyhow::Error::msg(why),
                })
            }
        };
        drop(state);
        came_to
    }

    fn wait<'a>(&'a self, work: &'a str) -> Result<Flight<'a>, Later> {
        let mut state = self.state();
        loop {
            let tried = match state.stopped.get(work) {
                Some(stopped) if Instant::now() < stopped.until => return Err(stopped.later()),
                Some(_) => Try::Again,
                None => Try::First,
            };
            let is_busy = state.busy.contains(work);
            let (taken, places) = state.places(tried);
            if !is_busy && *taken < places {
                *taken += 1;
                state.busy.insert(work.to_owned());
                return Ok(Flight {
                    flights: self,
                    work,
                    tried,
                });
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(flights: &SingleFlight) -> Later {
        let stopped = flights.run::<()>("bomb", |_| Err(Ended::Stopped("it takes too long".into())));
        stopped
            .expect_err("it was stopped")
            .downcast()
            .expect("it is tried again")
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_was_stopped_waits_longer_each_time() {
        let flights = SingleFlight::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            let later = stop(&flights);
            waits.push(later.at.duration_since(Instant::now()).as_secs());
            let meanwhile = flights.run::<()>("bomb", |_| panic!("not before its time"));
            assert_eq!(meanwhile.expect_err("not yet").to_string(), later.to_string());
            tokio::time::sleep_until(later.at).await;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        let tried = flights.run("bomb", Ok).expect("it is its time");
        assert_eq!(tried, Try::Again);
        let tried = flights.run("bomb", Ok).expect("it is its time");
        assert_eq!(tried, Try::First, "what came to something begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_in_the_work_itself_is_not_waited_for() {
        let flights = SingleFlight::default();
        for _ in 0..2 {
            let refused =
                flights.run::<()>("policy", |_| Err(Ended::Refused(anyhow::anyhow!("it is empty"))));
            let refused = refused.expect_err("refused");
            assert!(refused.downcast_ref::<Later>().is_none());
            assert_eq!(refused.to_string(), "it is empty");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_stopped_takes_no_place_from_what_is_new() {
        let flights = std::sync::Arc::new(SingleFlight::default());
        let later = stop(&flights);
        tokio::time::sleep_until(later.at).await;
        // During the second try of one piece of work, all places for new work are used.
        let first = |n: usize| flights.run(&format!("policy-{n}"), |_| Ok(n));
        let done = flights.run("bomb", |_| {
            Ok((0..FIRST).map(first).collect::<Result<Vec<_>, _>>())
        });
        assert_eq!(done.expect("done").expect("all done"), [0, 1, 2, 3]);
    }

    #[test]
    fn the_same_work_is_done_once_at_a_time() {
        let (flights, at_once) = (SingleFlight::default(), std::sync::atomic::AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let alone = flights.run("policy", |_| {
                        let others = at_once.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::yield_now();
                        at_once.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        Ok(others == 0)
                    });
                    assert!(alone.expect("done"));
                });
            }
        });
    }

    #[test]
    fn a_panic_in_the_work_gives_its_place_back() {
        let flights = SingleFlight::default();
        for _ in 0..2 * FIRST {
            let panics = || flights.run::<()>("policy", |_| panic!("a bug"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        }
        flights.run("policy", Ok).expect("there is a place");
    }
}
