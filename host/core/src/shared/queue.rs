//! The order of keys: each key is queued at most once, tenant queues take turns, and timers fire in the order of
//! their times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fair::{FairQueue, Ticket};
use crate::key::Key;
use crate::time::Boot;

/// Keys that wait for their turn, and keys that wait for a timer.
#[derive(Debug, Default)]
pub struct Queue {
    ready: FairQueue<Key>,
    /// Where each ready key stands. So a key that is forgotten leaves without a look at the others.
    queued: BTreeMap<Key, (Arc<str>, Ticket)>,
    timers: BTreeSet<(Boot, Key)>,
    deadlines: BTreeMap<Key, Boot>,
}

impl Queue {
    /// Adds a key to its tenant queue, unless it is queued already. Drops the timer of the key, because the coming
    /// pass sets a new one.
    pub fn push(&mut self, tenant_queue: &Arc<str>, key: Key) {
        self.cancel(&key);
        if !self.queued.contains_key(&key) {
            let ticket = self.ready.push(tenant_queue, key.clone());
            self.queued.insert(key, (tenant_queue.clone(), ticket));
        }
    }

    /// Sets a timer for a key, unless the key is queued or has an earlier timer. So a later deadline never delays a
    /// key.
    pub fn push_at(&mut self, at: Boot, key: Key) {
        if self.queued.contains_key(&key) || self.deadlines.get(&key).is_some_and(|known| *known <= at) {
            return;
        }
        self.cancel(&key);
        self.deadlines.insert(key.clone(), at);
        self.timers.insert((at, key));
    }

    /// Drops the timer of a key.
    pub fn cancel(&mut self, key: &Key) {
        if let Some(at) = self.deadlines.remove(key) {
            self.timers.remove(&(at, key.clone()));
        }
    }

    /// Removes a key and its timer.
    pub fn forget(&mut self, key: &Key) {
        self.cancel(key);
        if let Some((tenant_queue, ticket)) = self.queued.remove(key) {
            self.ready.remove(&tenant_queue, ticket);
        }
    }

    /// The time of the earliest timer.
    pub fn next_timer(&self) -> Option<Boot> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The time of the timer of a key.
    pub fn deadline(&self, key: &Key) -> Option<Boot> {
        self.deadlines.get(key).copied()
    }

    /// Removes and returns the keys whose timers are due.
    pub fn due(&mut self, now: Boot) -> Vec<Key> {
        let mut due = Vec::new();
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.deadlines.remove(&key);
                due.push(key);
            }
        }
        due
    }

    /// Removes the key that has its turn. Its tenant queue, which is returned, holds a place for its pass until
    /// [`Self::passed`]. Whether a tenant queue with so many passes may start this one, `may_start` says.
    pub fn pop(&mut self, may_start: impl Fn(u64, &Key) -> bool) -> Option<(Arc<str>, Key)> {
        let (tenant_queue, _, key) = self.ready.next_of(|_, passes, key| may_start(passes, key))?;
        self.queued.remove(&key);
        Some((tenant_queue, key))
    }

    /// A pass of a tenant queue has ended, or never began.
    pub fn passed(&mut self, tenant_queue: &Arc<str>) {
        self.ready.end(tenant_queue, 0);
    }

    /// The passes of all tenant queues.
    pub fn passes(&self) -> u64 {
        self.ready.held()
    }

    /// Whether a key is queued.
    pub fn is_queued(&self, key: &Key) -> bool {
        self.queued.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            binding: "b".into(),
            namespace: None,
            name: name.into(),
        }
    }

    fn next(queue: &mut Queue) -> Option<Key> {
        queue.pop(|_, _| true).map(|(_, key)| key)
    }

    #[test]
    fn later_deadline_does_not_delay_a_queued_key() {
        let mut queue = Queue::default();
        queue.push_at(Boot(10), key("a"));
        queue.push_at(Boot(20), key("a"));
        assert_eq!(queue.next_timer(), Some(Boot(10)));
        queue.push(&"t".into(), key("a"));
        queue.push_at(Boot(5), key("a"));
        assert_eq!(queue.next_timer(), None);
        assert_eq!(next(&mut queue), Some(key("a")));
        assert_eq!(next(&mut queue), None);
    }

    #[test]
    fn a_key_is_queued_at_most_once() {
        let mut queue = Queue::default();
        queue.push(&"t".into(), key("a"));
        queue.push(&"t".into(), key("a"));
        assert!(next(&mut queue).is_some() && next(&mut queue).is_none());
    }

    #[test]
    fn a_tenant_with_as_many_passes_as_it_may_have_is_passed_over_until_one_ends() {
        let (mut queue, full) = (Queue::default(), "full".into());
        for name in ["a", "b"] {
            queue.push(&full, key(name));
        }
        queue.push(&"free".into(), key("c"));
        let pop = |queue: &mut Queue| queue.pop(|passes, _| passes < 1).map(|(_, key)| key);
        let all = [pop(&mut queue), pop(&mut queue), pop(&mut queue)];
        assert_eq!(all, [Some(key("c")), Some(key("a")), None]);
        assert_eq!(queue.passes(), 2);
        queue.passed(&full);
        assert_eq!(pop(&mut queue), Some(key("b")));
    }

    #[test]
    fn a_key_that_leaves_is_nowhere_any_more_and_the_others_keep_their_order() {
        let mut queue = Queue::default();
        for name in ["0", "1", "2", "3"] {
            queue.push(&"t".into(), key(name));
        }
        queue.push_at(Boot(7), key("d"));
        for name in ["1", "2", "d"] {
            queue.forget(&key(name));
            assert!(!queue.is_queued(&key(name)));
        }
        assert_eq!(queue.next_timer(), None);
        let rest: Vec<Key> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(rest, ["0", "3"].map(key));
    }
}
