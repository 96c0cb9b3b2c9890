//! Whether the cache is known to be behind for the primary of a key.

use crate::object::ResourceVersion;
use crate::reconcile::Work;

/// Whether the cached primary of a key is stale, and the state of the read that mends it.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    /// The version that a write of this host named, if the write met a conflict or was cut. Cached versions up to
    /// this one are stale.
    pub(super) stale: Option<ResourceVersion>,
    /// A read is in flight, or waits for a place in its capacity.
    pub(super) reading: bool,
    /// The number of consecutive reads that failed.
    pub(super) failures: u32,
}

impl Freshness {
    /// Remembers the newest version at which a write of the pass met a conflict or was cut.
    pub(super) fn note(&mut self, work: &Work) {
        self.stale = work.behind.max(self.stale);
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading
    }

    /// Whether the last read failed, and no other one is under way.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0 && !self.reading
    }
}
