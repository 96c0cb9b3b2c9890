//! How a pass ended.

use crate::contract::{Event, Next, RetryRequest};
use crate::object::Object;
use crate::record::{Outcome, RetryRecord};
use crate::retry::Delay;

/// How a pass ends.
#[derive(Debug)]
pub(crate) struct PassEnd {
    pub(crate) outcome: Outcome,
    pub(crate) next: Option<Next>,
    pub(crate) events: Vec<Event>,
    /// The primary before this publication was rebased on a change that no pass has seen.
    pub(crate) unseen: Option<Object>,
}

impl PassEnd {
    /// An ended pass without Events and without a wish for its next pass.
    pub(crate) fn plain(outcome: Outcome) -> Self {
        PassEnd {
            outcome,
            next: None,
            events: Vec::new(),
            unseen: None,
        }
    }

    /// Changes the outcome of the pass. A fault remains a fault, even if its condition could not be written.
    pub(super) fn instead(self, outcome: Outcome) -> Self {
        match self.outcome {
            Outcome::Faulted | Outcome::Bug(_) => self,
            _ => PassEnd { outcome, ..self },
        }
    }
}

/// An ended pass, and how long its key waits.
#[derive(Debug)]
pub(crate) struct PassResult {
    pub(crate) ended: PassEnd,
    /// The wait, and the request for the retry policy, also if it was not sent. `None` if the pass is not retried.
    pub(crate) waited: Option<(Delay, RetryRequest)>,
    /// What the retry policy answered, if it was asked.
    pub(crate) retry: Option<RetryRecord>,
}

impl PassResult {
    /// An ended pass that is not retried.
    pub(crate) fn plain(outcome: Outcome) -> Self {
        PassResult {
            ended: PassEnd::plain(outcome),
            waited: None,
            retry: None,
        }
    }
}
