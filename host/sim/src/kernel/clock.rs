//! Time: it is told from outside, never goes back, and is counted from the beginning of the simulation.

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::cues::CueState;

/// What there is once in a simulation. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    pub(super) seed: u64,
    pub(super) start: u64,
    /// The latest time it was told.
    pub(super) now: u64,
    /// Where each cue stands, by its place in the settings.
    pub(super) cues: Vec<CueState>,
    /// No fault from now on.
    pub(super) calm: bool,
    /// The last number that was given.
    pub(super) counter: u64,
}

impl Head {
    pub(super) fn new(seed: u64, now: u64) -> Self {
        Head {
            seed,
            start: now,
            now,
            cues: Vec::new(),
            calm: false,
            counter: 0,
        }
    }
}

impl<E, Q> Kernel<E, Q> {
    /// The latest time it was told.
    pub(crate) fn now(&self) -> u64 {
        self.head.now
    }

    /// When the simulation began.
    pub(crate) fn start(&self) -> u64 {
        self.head.start
    }

    /// Since the start: the time of scenarios.
    pub(crate) fn elapsed(&self, at: u64) -> u64 {
        at.saturating_sub(self.head.start)
    }

    /// It is this late. Time never goes back: an earlier time is taken for the latest one.
    pub(crate) fn set_now(&mut self, now: u64) -> u64 {
        self.head.now = self.head.now.max(now);
        self.head.now
    }

    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u64 {
        self.head.counter += 1;
        self.head.counter
    }

    /// Whether nothing has been given a number since the start but the cues that wait for their time.
    pub(crate) fn is_fresh(&self) -> bool {
        let armed = self.settings.cues.iter().filter(|cue| cue.is_timed());
        self.head.counter == armed.count() as u64
    }

    /// Counts time from this moment. Whoever calls this has made sure that nothing has happened yet.
    pub(crate) fn begin(&mut self, now: u64) {
        self.due.retain(|_| false);
        self.head = Head::new(self.head.seed, now);
        self.expect_cues();
        self.dirty = true;
    }
}
