//! Limits the memory of journals: answers can be large, and many passes can be in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::key::PassId;

/// Once the journals of a tenant queue hold this many bytes, all its passes but the first wait. It is the size of
/// four full journals.
const TENANT_QUEUE: u64 = 32 << 20;
/// Once all journals hold this many bytes, passes of tenant queues that hold more than [`SMALL`] wait.
const HOST: u64 = 128 << 20;
/// The bytes that the journals of a tenant queue may hold whatever the others hold. So a tenant queue with small
/// answers never waits for the large ones of others.
const SMALL: u64 = 2 << 20;

/// The bytes in the journals of the passes in flight, and of those that have ended and are not recorded yet.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    queues: BTreeMap<Arc<str>, TenantQueue>,
    /// All passes, each with its tenant queue.
    all: BTreeMap<PassId, Arc<str>>,
    bytes: u64,
    /// Passes that waited and must check again. A pass that goes on by itself before its turn need not check any more.
    released: BTreeSet<PassId>,
    /// Whether passes are recorded. Until it is recorded, a pass that has ended still holds its bytes.
    records: bool,
    /// The passes that are not recorded yet, oldest first, and the number of those that are.
    unrecorded: VecDeque<(Arc<str>, u64)>,
    unrecorded_bytes: u64,
    recorded: u64,
}

#[derive(Debug, Default)]
struct TenantQueue {
    passes: BTreeMap<PassId, u64>,
    bytes: u64,
    /// Those of the bytes that passes hold which have ended.
    unrecorded: u64,
    /// Passes that wait until they may take in another answer.
    waiting: BTreeSet<PassId>,
}

impl Journals {
    /// The number of passes of a tenant queue in flight.
    pub(crate) fn passes(&self, queue: &str) -> u32 {
        self.queues
            .get(queue)
            .map_or(0, |queue| queue.passes.len() as u32)
    }

    /// The number of all passes in flight.
    pub(crate) fn all_passes(&self) -> u32 {
        self.all.len() as u32
    }

    /// Adds a pass that begins.
    pub(crate) fn begin(&mut self, queue: &Arc<str>, pass: PassId) {
        self.queues
            .entry(queue.clone())
            .or_default()
            .passes
            .insert(pass, 0);
        self.all.insert(pass, queue.clone());
    }

    /// From now on a pass that has ended holds its bytes until it is recorded.
    pub(crate) fn await_recordings(&mut self) {
        self.records = true;
    }

    /// Removes a pass that ended. Returns the waiting passes that must check again: those of its tenant queue, and
    /// also those of all others if bytes became free or if another pass is now the oldest. If passes are recorded, its
    /// bytes become free later.
    pub(crate) fn end(&mut self, name: &Arc<str>, pass: PassId) -> BTreeSet<PassId> {
        let was_oldest = self.is_oldest(pass);
        self.all.remove(&pass);
        self.released.remove(&pass);
        let Some(ended) = self.queues.get_mut(name) else {
            return BTreeSet::new();
        };
        let held = ended.passes.remove(&pass).unwrap_or(0);
        ended.waiting.remove(&pass);
        let mut released = std::mem::take(&mut ended.waiting);
        let frees = held > 0 && !self.records;
        if self.records {
            ended.unrecorded += held;
            self.unrecorded_bytes += held;
            self.unrecorded.push_back((name.clone(), held));
        } else {
            self.free(name, held);
        }
        if frees || was_oldest {
            released.append(&mut self.all_waiting());
        }
        self.released.extend(&released);
        released
    }

    /// Stores how many passes are recorded, in the order in which they ended. Returns the waiting passes that must check
    /// again.
    pub(crate) fn on_recorded(&mut self, count: u64) -> BTreeSet<PassId> {
        let before = self.bytes;
        while self.recorded < count
            && let Some((name, held)) = self.unrecorded.pop_front()
        {
            self.recorded += 1;
            self.unrecorded_bytes = self.unrecorded_bytes.saturating_sub(held);
            if let Some(queue) = self.queues.get_mut(&name) {
                queue.unrecorded = queue.unrecorded.saturating_sub(held);
            }
            self.free(&name, held);
        }
        if self.bytes == before {
            return BTreeSet::new();
        }
        let released = self.all_waiting();
        self.released.extend(&released);
        released
    }

    /// Takes the passes of all tenant queues that wait.
    fn all_waiting(&mut self) -> BTreeSet<PassId> {
        let mut waiting = BTreeSet::new();
        let queues = self.queues.values_mut();
        queues.for_each(|queue| waiting.append(&mut queue.waiting));
        waiting
    }

    /// Whether a pass waits that could go on once more passes are recorded.
    pub(crate) fn wait_for_recordings(&self) -> bool {
        self.unrecorded_bytes > 0 && self.queues.values().any(|queue| !queue.waiting.is_empty())
    }

    fn free(&mut self, name: &Arc<str>, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        queue.bytes = queue.bytes.saturating_sub(bytes);
        if queue.passes.is_empty() && queue.unrecorded == 0 {
            self.queues.remove(name);
        }
    }

    /// Whether a pass that waited must still check again. It need not twice.
    pub(crate) fn take_released(&mut self, pass: PassId) -> bool {
        self.released.remove(&pass)
    }

    /// Stores that a pass waits no more, whatever it held.
    pub(crate) fn wait_no_more(&mut self, pass: PassId) {
        self.released.remove(&pass);
        let queue = self.all.get(&pass).and_then(|queue| self.queues.get_mut(queue));
        if let Some(queue) = queue {
            queue.waiting.remove(&pass);
        }
    }

    fn is_oldest(&self, pass: PassId) -> bool {
        self.all.keys().next() == Some(&pass)
    }

    /// Stores how many bytes the journal of a pass holds, and whether the pass waits until it may hold more.
    pub(crate) fn hold(&mut self, queue: &Arc<str>, pass: PassId, bytes: u64, waits: bool) {
        let Some(queue) = self.queues.get_mut(queue) else {
            return;
        };
        let Some(held) = queue.passes.get_mut(&pass) else {
            return;
        };
        let before = std::mem::replace(held, bytes);
        queue.bytes = queue.bytes.saturating_sub(before).saturating_add(bytes);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(bytes);
        self.released.remove(&pass);
        match waits {
            true => queue.waiting.insert(pass),
            false => queue.waiting.remove(&pass),
        };
    }

    /// Whether a pass waits until its journal may hold more.
    pub(crate) fn is_waiting(&self, queue: &str, pass: PassId) -> bool {
        self.queues
            .get(queue)
            .is_some_and(|queue| queue.waiting.contains(&pass))
    }

    /// Whether a pass may take in another answer. The oldest pass always may, unless bytes become free without it, because
    /// passes are recorded. Without this exception all passes could wait for each other for ever.
    pub(crate) fn may_hold_more(&self, queue: &str, pass: PassId) -> bool {
        let Some(queue) = self.queues.get(queue) else {
            return true;
        };
        let is_first = queue.passes.keys().next() == Some(&pass) && queue.unrecorded == 0;
        let is_oldest = self.is_oldest(pass) && self.unrecorded_bytes == 0;
        let fits = self.bytes < HOST && (queue.bytes < TENANT_QUEUE || is_first);
        is_oldest || fits || queue.bytes < SMALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journals(passes: &[(&str, u64, u64)]) -> Journals {
        let mut journals = Journals::default();
        for (queue, pass, bytes) in passes {
            journals.begin(&(*queue).into(), PassId(*pass));
            journals.hold(&(*queue).into(), PassId(*pass), *bytes, false);
        }
        journals
    }

    #[test]
    fn passes_of_a_tenant_that_holds_too_much_wait_but_for_the_first() {
        let mut journals = journals(&[("a", 1, 0), ("b", 2, 16 << 20), ("b", 3, 16 << 20), ("c", 4, 0)]);
        assert!(!journals.may_hold_more("b", PassId(3)));
        assert!(journals.may_hold_more("b", PassId(2)));
        assert!(journals.may_hold_more("c", PassId(4)));
        journals.hold(&"b".into(), PassId(3), 16 << 20, true);
        assert_eq!(journals.end(&"b".into(), PassId(2)), BTreeSet::from([PassId(3)]));
        assert!(journals.may_hold_more("b", PassId(3)));
    }

    #[test]
    fn a_pass_that_has_ended_holds_its_bytes_until_it_is_recorded() {
        let mut journals = journals(&[("a", 1, 40 << 20), ("b", 2, 1 << 20)]);
        journals.await_recordings();
        assert!(journals.may_hold_more("a", PassId(1)), "it is the first");
        assert_eq!(journals.end(&"a".into(), PassId(1)), BTreeSet::new());
        assert_eq!(journals.bytes, 41 << 20);
        journals.begin(&"a".into(), PassId(3));
        assert!(
            !journals.may_hold_more("a", PassId(3)),
            "though it is the first now"
        );
        assert!(!journals.wait_for_recordings());
        journals.hold(&"a".into(), PassId(3), 0, true);
        assert!(journals.wait_for_recordings());
        assert!(journals.may_hold_more("b", PassId(2)));
        assert_eq!(journals.end(&"b".into(), PassId(2)), BTreeSet::from([PassId(3)]));
        journals.hold(&"a".into(), PassId(3), 0, true);
        assert_eq!(journals.on_recorded(1), BTreeSet::from([PassId(3)]));
        assert!(journals.may_hold_more("a", PassId(3)));
        assert_eq!(journals.bytes, 1 << 20);
        // A host may say the same twice.
        assert_eq!(journals.on_recorded(1), BTreeSet::new());
        journals.on_recorded(2);
        assert_eq!((journals.bytes, journals.unrecorded_bytes), (0, 0));
        assert!(!journals.queues.contains_key("b"), "nothing is left of it");
        journals.end(&"a".into(), PassId(3));
        journals.on_recorded(u64::MAX);
        assert!(journals.queues.is_empty() && journals.unrecorded.is_empty());
    }

    #[test]
    fn while_nothing_of_its_own_is_unrecorded_the_oldest_pass_waits_for_the_recordings_of_all() {
        let mut journals = journals(&[("a", 1, 130 << 20), ("b", 2, 3 << 20)]);
        journals.await_recordings();
        journals.end(&"a".into(), PassId(1));
        assert!(!journals.may_hold_more("b", PassId(2)), "the oldest");
        journals.on_recorded(1);
        assert!(journals.may_hold_more("b", PassId(2)));
    }

    #[test]
    fn when_all_hold_too_much_the_oldest_goes_on_and_whoever_holds_little() {
        let queue = |n: u64| ["a", "b", "c", "d", "e"][n as usize];
        let passes: Vec<(&str, u64, u64)> = (0..5).map(|n| (queue(n), n + 1, 30 << 20)).collect();
        let mut journals = journals(&passes);
        journals.begin(&"small".into(), PassId(9));
        assert!(journals.may_hold_more("a", PassId(1)));
        assert!(!journals.may_hold_more("b", PassId(2)));
        assert!(journals.may_hold_more("small", PassId(9)));
        journals.hold(&"b".into(), PassId(2), 30 << 20, true);
        assert_eq!(journals.end(&"a".into(), PassId(1)), BTreeSet::from([PassId(2)]));
        assert!(journals.may_hold_more("b", PassId(2)));
    }

    #[test]
    fn when_the_oldest_ends_and_held_nothing_the_next_one_goes_on() {
        let mut journals = journals(&[("idle", 1, 0), ("a", 2, 70 << 20), ("b", 3, 70 << 20)]);
        journals.hold(&"a".into(), PassId(2), 70 << 20, true);
        journals.hold(&"b".into(), PassId(3), 70 << 20, true);
        assert!(!journals.may_hold_more("a", PassId(2)));
        let released = journals.end(&"idle".into(), PassId(1));
        assert!(released.contains(&PassId(2)), "{released:?}");
        assert!(journals.may_hold_more("a", PassId(2)));
    }

    #[test]
    fn what_a_pass_holds_is_counted_once_and_given_back() {
        let mut journals = journals(&[("a", 1, 10)]);
        journals.hold(&"a".into(), PassId(1), 30, false);
        assert_eq!(
            (journals.bytes, journals.passes("a"), journals.all_passes()),
            (30, 1, 1)
        );
        journals.end(&"a".into(), PassId(1));
        assert_eq!(
            (journals.bytes, journals.passes("a"), journals.all_passes()),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_pass_that_gives_memory_back_lets_those_of_other_tenants_requeue_if_changed() {
        let mut journals = journals(&[("a", 1, 70 << 20), ("b", 2, 70 << 20), ("c", 3, 0)]);
        journals.hold(&"b".into(), PassId(2), 70 << 20, true);
        assert!(journals.is_waiting("b", PassId(2)) && !journals.is_waiting("c", PassId(3)));
        assert!(journals.end(&"c".into(), PassId(3)).is_empty(), "it held nothing");
        journals.begin(&"c".into(), PassId(4));
        journals.hold(&"c".into(), PassId(4), 1, false);
        assert_eq!(journals.end(&"c".into(), PassId(4)), BTreeSet::from([PassId(2)]));
    }

    #[test]
    fn a_bound_is_reached_by_its_last_byte() {
        for (of_queue, of_others, may) in [
            (TENANT_QUEUE - 1, 0, true),
            (TENANT_QUEUE, 0, false),
            (SMALL, HOST - SMALL - 1, true),
            (SMALL, HOST - SMALL, false),
            (SMALL - 1, HOST, true),
        ] {
            let journals = journals(&[("a", 1, of_others), ("b", 2, of_queue), ("b", 3, 0)]);
            assert_eq!(
                journals.may_hold_more("b", PassId(3)),
                may,
                "{of_queue} {of_others}"
            );
        }
    }
}
