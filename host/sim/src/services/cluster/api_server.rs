//! The API server that machines join: when it does not answer, and how long nodes were not heard of because of that.

use crate::config::scenario::Span;
use crate::event::Kernel;

/// When it is away, in Unix milliseconds.
pub(super) struct ApiServer {
    down: Vec<(u64, u64)>,
    /// How long a node is not heard of before it counts as unknown, in milliseconds.
    grace: u64,
}

impl ApiServer {
    /// As the scenario says, unless nothing goes wrong any more.
    pub(super) fn new(kernel: &Kernel, down: &[Span], grace: u64) -> Self {
        let spans = down.iter().filter(|_| !kernel.is_calm());
        let start = kernel.start();
        ApiServer {
            down: spans
                .map(|span| (start + span.from.0, start + span.until.0))
                .collect(),
            grace,
        }
    }

    fn down(&self, at: u64) -> Option<(u64, u64)> {
        let mut spans = self.down.iter();
        spans.find(|(from, until)| (*from..*until).contains(&at)).copied()
    }

    /// When it answers again, if it does not.
    pub(super) fn back(&self, at: u64) -> Option<u64> {
        self.down(at).map(|(_, until)| until)
    }

    /// Since when nobody knows how a node is: it was silent for too long, or could not be heard.
    pub(super) fn unheard(&self, now: u64, silent: Option<u64>) -> Option<u64> {
        let down = self.down(now).map(|(from, _)| from);
        let last = [silent, down].into_iter().flatten().min()?;
        let unknown = last + self.grace;
        (now >= unknown).then_some(unknown)
    }

    /// When the nodes were heard again after they could not be for too long, the last time.
    pub(super) fn heard_again(&self, now: u64) -> u64 {
        let long = self.down.iter();
        let long = long.filter(|(from, until)| *until <= now && until - from > self.grace);
        long.map(|(_, until)| *until).max().unwrap_or(0)
    }

    /// When nodes change by nothing but time: those that have been silent since then, and all of them.
    pub(super) fn turns(&self, silent: impl Iterator<Item = u64>) -> Vec<u64> {
        let spans = self.down.iter();
        let spans = spans.flat_map(|(from, until)| [*from, from + self.grace, *until]);
        silent.map(|since| since + self.grace).chain(spans).collect()
    }
}
