//! Cues: moments at which a scenario makes something happen to a thing that it names.
//!
//! The kernel knows when it is time. What then happens, and whether the thing is there, is known to whoever acts on the
//! cue.

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::due::Due;

/// When something is to happen to a thing, once. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Cue {
    /// The name of the thing. While there is none, the cue waits for it.
    pub(crate) about: String,
    /// Since the start: not before.
    pub(crate) at: u64,
    /// This long after the thing was started. None: as soon as it may.
    pub(crate) after_start: Option<u64>,
    /// Since the start: given up then.
    pub(crate) until: Option<u64>,
}

impl Cue {
    /// Whether it waits for nothing but its time.
    pub(super) fn is_timed(&self) -> bool {
        self.after_start.is_none()
    }
}

/// Where a cue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CueState {
    /// For a thing of its name, or for the start of that.
    Waiting,
    /// It is due.
    Armed,
    /// It happened.
    Done,
}

impl<E, Q> Kernel<E, Q> {
    /// Enters the cues that it does not know yet.
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

    /// A thing of this name is there: cues that waited for it.
    pub(crate) fn on_appeared(&mut self, at: u64, name: &str) {
        self.arm(name, |cue| cue.after_start.is_none().then_some(at));
    }

    /// The thing of this name was started: cues that waited for that.
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

    /// The thing was not there: the cue waits for it.
    pub(crate) fn cue_missed(&mut self, index: usize) {
        self.head.cues[index] = CueState::Waiting;
    }

    /// It happened, and will not happen again.
    pub(crate) fn cue_done(&mut self, index: usize) {
        self.head.cues[index] = CueState::Done;
    }

    pub(super) fn has_open_cues(&self, elapsed: u64) -> bool {
        let mut states = self.settings.cues.iter().zip(&self.head.cues);
        states.any(|(cue, state)| *state != CueState::Done && cue.until.is_none_or(|until| elapsed < until))
    }
}
