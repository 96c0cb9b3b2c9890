//! Time: the caller passes it, it never goes back, and it is counted from the start of the simulation.

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::cues::CueState;

/// The state that a simulation has once. Times are in Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    pub(super) seed: u64,
    pub(super) start: u64,
    /// The latest time that was passed in.
    pub(super) now: u64,
    /// The state of each cue, by its position in the settings.
    pub(super) cues: Vec<CueState>,
    /// Whether faults were stopped.
    pub(super) calm: bool,
    /// The last number that was given out.
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
    /// The latest time that was passed in.
    pub(crate) fn now(&self) -> u64 {
        self.head.now
    }

    /// When the simulation began.
    pub(crate) fn start(&self) -> u64 {
        self.head.start
    }

    /// The time since the start, which scenarios use.
    pub(crate) fn elapsed(&self, at: u64) -> u64 {
        at.saturating_sub(self.head.start)
    }

    /// Sets the time. An earlier time counts as the latest one, so time never goes back.
    pub(crate) fn set_now(&mut self, now: u64) -> u64 {
        self.head.now = self.head.now.max(now);
        self.head.now
    }

    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u64 {
        self.head.counter += 1;
        self.head.counter
    }

    /// Whether no number was given out since the start but to cues that wait for their time.
    pub(crate) fn is_fresh(&self) -> bool {
        let armed = self.settings.cues.iter().filter(|cue| cue.is_timed());
        self.head.counter == armed.count() as u64
    }

    /// Counts time from this moment. The caller must make sure that nothing has happened yet.
    pub(crate) fn begin(&mut self, now: u64) {
        self.due.retain(|_| false);
        self.head = Head::new(self.head.seed, now);
        self.expect_cues();
        self.dirty = true;
    }
}
