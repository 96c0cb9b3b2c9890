//! Reads that lag behind writes.

use crate::Sim;

impl Sim {
    /// The moment that a look at this time sees: up to `lag` ago, each look for itself, so that a later look may well
    /// see an earlier moment.
    pub(crate) fn look(&mut self, at: u64, owner: &str) -> u64 {
        let draw = self.world.draw(owner);
        at.saturating_sub(draw % (self.config.lag.0 + 1))
    }
}
