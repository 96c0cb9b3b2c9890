//! The API server that machines join: when it does not answer, and for how long nodes were silent because of
//! that.

use crate::config::scenario::Span;
use crate::event::Kernel;

/// When the API server is away, in Unix milliseconds.
pub(super) struct ApiServer {
    down: Vec<(u64, u64)>,
    /// How long a node can be silent before its state is unknown, in milliseconds.
    grace: u64,
}

impl ApiServer {
    /// The times of the scenario; none if faults were stopped.
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

    /// When it answers again, if it is away.
    pub(super) fn back(&self, at: u64) -> Option<u64> {
        self.down(at).map(|(_, until)| until)
    }

    /// Since when the state of a node is unknown: the node was silent for too long, or could not be heard.
    pub(super) fn unheard(&self, now: u64, silent: Option<u64>) -> Option<u64> {
        let down = self.down(now).map(|(from, _)| from);
        let last = [silent, down].into_iter().flatten().min()?;
        let unknown = last + self.grace;
        (now >= unknown).then_some(unknown)
    }

    /// The last time at which nodes were heard again after too long a silence.
    pub(super) fn heard_again(&self, now: u64) -> u64 {
        let long = self.down.iter();
        let long = long.filter(|(from, until)| *until <= now && until - from > self.grace);
        long.map(|(_, until)| *until).max().unwrap_or(0)
    }

    /// The times at which nodes change by themselves: nodes that fell silent at these times, and all nodes.
    pub(super) fn turns(&self, silent: impl Iterator<Item = u64>) -> Vec<u64> {
        let spans = self.down.iter();
        let spans = spans.flat_map(|(from, until)| [*from, from + self.grace, *until]);
        silent.map(|since| since + self.grace).chain(spans).collect()
    }
}
