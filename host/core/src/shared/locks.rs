//! Mutual exclusion between passes of one binding and tenant.
//!
//! A key whose pass found a lock busy waits in the queue of this lock, until a later pass of the key gets the lock or
//! no longer asks for it. When the lock is released, the first waiting key is enqueued. The lock is not reserved for
//! that key: a pass of another key may take it first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::key::{Key, PassId};

/// The most locks that a pass may ask for. A key waits for each lock that was busy, so this is also for how many it waits.
pub(crate) const LOCKS: usize = 64;

/// A lock: its binding, its tenant and its name.
pub type Lock = (Arc<str>, Arc<str>, String);

/// The answer to a policy that asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAnswer {
    /// The pass of the policy now holds the lock.
    Held,
    /// Another pass holds it.
    Busy,
}

impl LockAnswer {
    /// The answer as JSON, in the words of the contract.
    pub(crate) fn json(self) -> &'static str {
        match self {
            LockAnswer::Held => "\"held\"",
            LockAnswer::Busy => "\"busy\"",
        }
    }
}

/// The holder and the waiting keys of each lock. Locks live in memory only, so a crash releases all of them.
#[derive(Debug, Default)]
pub struct Locks {
    held: BTreeMap<Lock, PassId>,
    /// The locks that each pass holds.
    of_passes: BTreeMap<PassId, BTreeSet<Lock>>,
    waiting: BTreeMap<Lock, Waiters>,
    last_ticket: u64,
}

/// The keys that wait for a lock; there is at least one.
#[derive(Debug, Default)]
struct Waiters {
    /// The keys in the order in which their passes found the lock busy.
    order: BTreeMap<u64, Key>,
    /// The place of each key in this order.
    places: BTreeMap<Key, u64>,
}

impl Locks {
    /// Takes a lock for a pass unless another pass holds it. Returns whether the pass now holds the lock.
    pub fn take(&mut self, binding: &Arc<str>, tenant: &Arc<str>, name: &str, pass: PassId) -> bool {
        let lock = lock(binding, tenant, name);
        let holder = *self.held.entry(lock.clone()).or_insert(pass);
        if holder == pass {
            self.of_passes.entry(pass).or_default().insert(lock);
        }
        holder == pass
    }

    /// The pass that holds a lock.
    pub fn holder(&self, binding: &Arc<str>, tenant: &Arc<str>, name: &str) -> Option<PassId> {
        self.held.get(&lock(binding, tenant, name)).copied()
    }

    /// Releases all locks of a pass and returns them. The next holder sees the conclusion of this pass only if the
    /// caller has entered it into the cache before.
    pub fn release(&mut self, pass: PassId) -> Vec<Lock> {
        let free = self.of_passes.remove(&pass).unwrap_or_default();
        for lock in &free {
            self.held.remove(lock);
        }
        free.into_iter().collect()
    }

    /// Moves a key from the queues of the locks `before` to those of the locks `busy`. The key keeps its place for a
    /// lock that is in both. Returns the locks that it left or waits for.
    pub(crate) fn wait(
        &mut self,
        key: &Key,
        tenant: &Arc<str>,
        before: &[String],
        busy: &[String],
    ) -> Vec<Lock> {
        let left = before.iter().filter(|name| !busy.contains(name));
        let left: Vec<Lock> = left.map(|name| lock(&key.binding, tenant, name)).collect();
        for lock in &left {
            if let Some(waiters) = self.waiting.get_mut(lock) {
                waiters.remove(key);
                if waiters.order.is_empty() {
                    self.waiting.remove(lock);
                }
            }
        }
        let mut concerned = left;
        for name in busy {
            let lock = lock(&key.binding, tenant, name);
            self.last_ticket += 1;
            let waiters = self.waiting.entry(lock.clone()).or_default();
            waiters.add(key, self.last_ticket);
            concerned.push(lock);
        }
        concerned
    }

    /// The first waiting key of a free lock.
    pub(crate) fn next(&self, lock: &Lock) -> Option<&Key> {
        if self.held.contains_key(lock) {
            None
        } else {
            self.waiting.get(lock)?.order.values().next()
        }
    }
}

impl Waiters {
    fn add(&mut self, key: &Key, ticket: u64) {
        if !self.places.contains_key(key) {
            self.places.insert(key.clone(), ticket);
            self.order.insert(ticket, key.clone());
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(ticket) = self.places.remove(key) {
            self.order.remove(&ticket);
        }
    }
}

fn lock(binding: &Arc<str>, tenant: &Arc<str>, name: &str) -> Lock {
    (binding.clone(), tenant.clone(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            binding: "b".into(),
            namespace: Some("t".into()),
            name: name.into(),
        }
    }

    #[test]
    fn a_lock_is_busy_until_its_pass_ends() {
        let (mut locks, binding, tenant) = (Locks::default(), Arc::from("b"), Arc::from("t"));
        assert!(locks.take(&binding, &tenant, "drain", PassId(1)));
        assert!(locks.take(&binding, &tenant, "drain", PassId(1)));
        assert!(!locks.take(&binding, &tenant, "drain", PassId(2)));
        assert_eq!(locks.holder(&binding, &tenant, "drain"), Some(PassId(1)));
        assert!(locks.take(&binding, &Arc::from("other tenant"), "drain", PassId(2)));
        assert_eq!(locks.release(PassId(1)), [lock(&binding, &tenant, "drain")]);
        assert!(locks.take(&binding, &tenant, "drain", PassId(2)));
        assert_eq!(locks.release(PassId(2)).len(), 2);
        assert!(locks.held.is_empty() && locks.of_passes.is_empty());
    }

    #[test]
    fn the_key_that_found_a_lock_busy_first_is_next_when_it_is_free() {
        let (mut locks, binding, tenant) = (Locks::default(), Arc::from("b"), Arc::from("t"));
        let drain = lock(&binding, &tenant, "drain");
        locks.take(&binding, &tenant, "drain", PassId(1));
        let busy = ["drain".to_owned()];
        for (name, before) in [("first", &[][..]), ("second", &[]), ("first", &busy)] {
            locks.wait(&key(name), &tenant, before, &busy);
        }
        assert_eq!(locks.next(&drain), None, "it is not free");
        locks.release(PassId(1));
        assert_eq!(locks.next(&drain), Some(&key("first")));
        // It no longer asks for the lock, so the next key follows.
        let left = locks.wait(&key("first"), &tenant, &busy, &[]);
        assert_eq!(left.first(), Some(&drain));
        assert_eq!(locks.next(&drain), Some(&key("second")));
        locks.wait(&key("second"), &tenant, &busy, &[]);
        assert_eq!(locks.next(&drain), None);
        assert!(locks.waiting.is_empty(), "an empty queue is removed");
    }

    #[test]
    fn a_pass_releases_its_own_locks_and_a_key_leaves_its_own_queues() {
        let (mut locks, binding, tenant) = (Locks::default(), Arc::from("b"), Arc::from("t"));
        let names = ["three", "one", "two"];
        for (number, name) in names.iter().enumerate() {
            locks.take(&binding, &tenant, name, PassId(number as u64 % 2));
        }
        assert_eq!(locks.of_passes[&PassId(0)].len(), 2);
        let free = ["three", "two"].map(|name| lock(&binding, &tenant, name));
        assert_eq!(locks.release(PassId(0)), free);
        assert_eq!(locks.holder(&binding, &tenant, "one"), Some(PassId(1)));
        let busy = names.map(str::to_owned);
        for name in ["first", "second", "third"] {
            locks.wait(&key(name), &tenant, &[], &busy);
        }
        locks.wait(&key("first"), &tenant, &busy, &busy[..1]);
        let queue = |name: &str| {
            let waiters = &locks.waiting[&lock(&binding, &tenant, name)];
            assert_eq!(waiters.order.len(), waiters.places.len());
            waiters
                .order
                .values()
                .map(|key| key.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(queue("three"), ["first", "second", "third"]);
        assert_eq!(queue("one"), ["second", "third"]);
    }

    #[test]
    fn a_lock_that_became_free_during_the_pass_that_found_it_busy_is_checked_at_once() {
        let (mut locks, tenant) = (Locks::default(), Arc::from("t"));
        let concerned = locks.wait(&key("late"), &tenant, &[], &["drain".into()]);
        assert_eq!(locks.next(&concerned[0]), Some(&key("late")));
    }
}
