//! Turns: who may have work done on bytes that nobody vouches for, how much time it gets, and when it is tried again.
//!
//! # Guarantees
//!
//! - The same work is done once at a time, and not sooner again than its last failure said.
//! - What was stopped once is tried again beside what is new, never before it: it has a place of its own, and more time.
//!
//! # Caveats
//!
//! What is new waits for a place while [`FIRST`] others are worked on, for as long as a first try takes at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::display::duration;

/// Work at once that is tried for the first time. Each may have as much memory as compiling takes.
const FIRST: usize = 4;
/// Work at once that was stopped before.
const AGAIN: usize = 1;
/// The first wait after work was stopped; each further one is twice as long.
const SHORTEST: Duration = Duration::from_secs(10);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(600);

/// Whether work was stopped before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// It was not.
    First,
    /// It was.
    Again,
}

/// Why work came to nothing.
pub(crate) enum Ended {
    /// It would come to nothing again.
    Refused(anyhow::Error),
    /// By its bounds or by the machine.
    Stopped(String),
}

/// Work was stopped, and is tried again then.
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

/// Who has a turn, and who waits for one.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// What is worked on.
    busy: BTreeSet<String>,
    first: usize,
    again: usize,
    stopped: BTreeMap<String, Stopped>,
}

/// What was stopped the last time.
struct Stopped {
    times: u32,
    until: Instant,
    why: String,
}

impl State {
    /// Places that work of this kind takes, and how many there are.
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
        let in_words = duration(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let stopped = Stopped {
            times,
            until: now + wait,
            why: format!("{why}; it is tried again in {in_words}"),
        };
        let later = stopped.later();
        // What nobody wanted again when its time came is forgotten.
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

/// A turn, until it is dropped.
struct Turn<'a> {
    turns: &'a Turns,
    work: &'a str,
    tried: Try,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.busy.remove(self.work);
        *state.places(self.tried).0 -= 1;
        self.turns.ended.notify_all();
    }
}

impl Turns {
    /// Does work of this name when it has its turn. The error is a [`Later`] if it was stopped.
    pub(crate) fn take<T>(
        &self,
        work: &str,
        act: impl FnOnce(Try) -> Result<T, Ended>,
    ) -> Result<T, anyhow::Error> {
        let turn = self.wait(work)?;
        let ended = act(turn.tried);
        // Before others have a turn with the same work.
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

    fn wait<'a>(&'a self, work: &'a str) -> Result<Turn<'a>, Later> {
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
                return Ok(Turn {
                    turns: self,
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

    fn stop(turns: &Turns) -> Later {
        let stopped = turns.take::<()>("bomb", |_| Err(Ended::Stopped("it takes too long".into())));
        stopped
            .expect_err("it was stopped")
            .downcast()
            .expect("it is tried again")
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_was_stopped_waits_longer_each_time() {
        let turns = Turns::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            let later = stop(&turns);
            waits.push(later.at.duration_since(Instant::now()).as_secs());
            let meanwhile = turns.take::<()>("bomb", |_| panic!("not before its time"));
            assert_eq!(meanwhile.expect_err("not yet").to_string(), later.to_string());
            tokio::time::sleep_until(later.at).await;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        let tried = turns.take("bomb", Ok).expect("it has its turn");
        assert_eq!(tried, Try::Again);
        let tried = turns.take("bomb", Ok).expect("it has its turn");
        assert_eq!(tried, Try::First, "what came to something begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_in_the_work_itself_is_not_waited_for() {
        let turns = Turns::default();
        for _ in 0..2 {
            let refused = turns.take::<()>("policy", |_| Err(Ended::Refused(anyhow::anyhow!("it is empty"))));
            let refused = refused.expect_err("refused");
            assert!(refused.downcast_ref::<Later>().is_none());
            assert_eq!(refused.to_string(), "it is empty");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_stopped_takes_no_place_from_what_is_new() {
        let turns = std::sync::Arc::new(Turns::default());
        let later = stop(&turns);
        tokio::time::sleep_until(later.at).await;
        // In the middle of the second try of one, as many are tried for the first time as there are places.
        let first = |n: usize| turns.take(&format!("policy-{n}"), |_| Ok(n));
        let done = turns.take("bomb", |_| {
            Ok((0..FIRST).map(first).collect::<Result<Vec<_>, _>>())
        });
        assert_eq!(done.expect("a turn").expect("turns"), [0, 1, 2, 3]);
    }

    #[test]
    fn the_same_work_is_done_once_at_a_time() {
        let (turns, at_once) = (Turns::default(), std::sync::atomic::AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let alone = turns.take("policy", |_| {
                        let others = at_once.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::yield_now();
                        at_once.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        Ok(others == 0)
                    });
                    assert!(alone.expect("a turn"));
                });
            }
        });
    }

    #[test]
    fn a_panic_in_the_work_gives_its_place_back() {
        let turns = Turns::default();
        for _ in 0..2 * FIRST {
            let panics = || turns.take::<()>("policy", |_| panic!("a bug"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        }
        turns.take("policy", Ok).expect("there is a place");
    }
}
