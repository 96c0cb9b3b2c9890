//! What a publication makes of the entries of `status.pending`.

use std::time::Duration;

use crate::entry::PendingEntry;
use crate::reconcile::frame::Frame;
use crate::reconcile::work::{EntryHistory, KnownEntry, Work};
use crate::time::millis;
use crate::worker::{Drops, Entries};

/// What becomes of the entries that a pass knows of.
pub(super) fn of(drops: Drops, frame: &Frame, work: &Work) -> Entries {
    let known = || work.found.iter().chain(&work.entered);
    let resolved = known().filter(|known| known.fate.is_known());
    let waited = |known: &KnownEntry| (known.entry.key.clone(), waited(&known.entry, frame, work));
    Entries {
        drops,
        resolved: resolved.map(|known| known.entry.key.clone()).collect(),
        waited: known().map(waited).collect(),
    }
}

/// The time for which hosts have known of an entry. It is rounded down to steps of a thirty-second of the time after
/// which the create is visible, but of at least ten seconds: so a host that lives for a short time saves the next one
/// most of the wait, and an entry costs few writes.
fn waited(entry: &PendingEntry, frame: &Frame, work: &Work) -> Duration {
    let operation = frame.binding.catalogue.operations.get(&entry.operation);
    let visible_within = operation.map_or(0, |operation| millis(operation.visible_within));
    let step = (visible_within / 32).max(10_000).min(visible_within.div_ceil(4));
    // The time is measured at the beginning of the pass, so that every part of the publication computes the same
    // value.
    let waited = |history: &EntryHistory| millis(history.waited(frame.started.boot));
    let waited = work
        .histories
        .get(&entry.key)
        .map_or(0, waited)
        .min(visible_within);
    let steps = waited.checked_div(step).unwrap_or(0);
    let is_over = waited == visible_within;
    Duration::from_millis(if is_over { waited } else { steps * step })
}
