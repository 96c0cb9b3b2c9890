//! Cues: times at which a scenario makes something happen to a named thing.
//!
//! The kernel knows when a cue is due. The code that acts on the cue knows what happens, and whether the
//! thing exists.

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::due::Due;

/// When something happens to a thing, once. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Cue {
    /// The name of the thing. If there is none, the cue waits for it.
    pub(crate) about: String,
    /// The earliest time since the start.
    pub(crate) at: u64,
    /// The time after the thing was started; `None`: as early as it may.
    pub(crate) after_start: Option<u64>,
    /// The time since the start at which the cue is given up.
    pub(crate) until: Option<u64>,
}

impl Cue {
    /// Whether the cue waits only for its time.
    pub(super) fn is_timed(&self) -> bool {
        self.after_start.is_none()
    }
}

/// The state of a cue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CueState {
    /// The cue waits for a thing of its name, or for the start of that thing.
    Waiting,
    /// The cue is due at its time.
    Armed,
    /// The cue has happened.
    Done,
}

impl<E, Q> Kernel<E, Q> {
    /// Schedules the cues that are new.
    pub(crate) fn expect_cues(&mut self) {
        for index in self.head.cues.len()..self.settings.cues.len() {
            let cue = &self.settings.cues[index];
            let (timed, at) = (cue.is_timed(), self.head.start + cue.at);
            self.head
                .cues
                .push(if timed { CueState::Armed } else { CueState::Waiting });
            if timed {
                self.enter(at, Due::Cue(index));
            }
        }
    }

    /// A thing of this name exists now. Cues that waited for it become due.
    pub(crate) fn on_created(&mut self, at: u64, name: &str) {
        self.arm(name, |cue| cue.after_start.is_none().then_some(at));
    }

    /// The thing of this name was started. Cues that waited for that become due.
    pub(crate) fn on_started(&mut self, at: u64, name: &str) {
        self.arm(name, |cue| cue.after_start.map(|after| at + after));
    }

    fn arm(&mut self, name: &str, due: impl Fn(&Cue) -> Option<u64>) {
        for index in 0..self.settings.cues.len() {
            let cue = &self.settings.cues[index];
            if cue.about != name || self.head.cues[index] != CueState::Waiting {
                continue;
            }
            if let Some(at) = due(cue) {
                let at = at.max(self.head.start + cue.at);
                self.head.cues[index] = CueState::Armed;
                self.enter(at, Due::Cue(index));
            }
        }
    }

    /// The cue whose time has come, unless it was given up.
    pub(crate) fn cue(&self, at: u64, index: usize) -> Option<Cue> {
        let cue = self.settings.cues.get(index)?;
        let given_up = cue.until.is_some_and(|until| self.elapsed(at) >= until);
        (!self.head.calm && !given_up).then(|| cue.clone())
    }

    /// The thing did not exist: the cue waits for it.
    pub(crate) fn cue_missed(&mut self, index: usize) {
        self.head.cues[index] = CueState::Waiting;
    }

    /// The cue has happened and will not happen again.
    pub(crate) fn cue_done(&mut self, index: usize) {
        self.head.cues[index] = CueState::Done;
    }

    pub(super) fn has_open_cues(&self, elapsed: u64) -> bool {
        let mut states = self.settings.cues.iter().zip(&self.head.cues);
        states.any(|(cue, state)| *state != CueState::Done && cue.until.is_none_or(|until| elapsed < until))
    }
}
