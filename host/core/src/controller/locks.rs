//! Mutual exclusion between passes of one binding and tenant.
//!
//! A key whose pass found a lock busy waits in the queue of this lock, until a later pass of the key gets the lock or
//! no longer asks for it. When the lock is released, the first waiting key is enqueued. The lock is not reserved for
//! that key: a pass of another key may take it first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Controller;
use super::keys::KeyState;
use crate::contract::Cause;
use crate::key::{Key, PassId};

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
    /// Keys in the order in which their passes found the lock busy.
    waiting: BTreeMap<Lock, VecDeque<Key>>,
}

impl Locks {
    /// Takes a lock for a pass unless another pass holds it. Returns whether the pass now holds the lock.
    pub fn take(&mut self, binding: &Arc<str>, tenant: &Arc<str>, name: &str, pass: PassId) -> bool {
        let holder = self.held.entry(lock(binding, tenant, name)).or_insert(pass);
        *holder == pass
    }

    /// The pass that holds a lock.
    pub fn holder(&self, binding: &Arc<str>, tenant: &Arc<str>, name: &str) -> Option<PassId> {
        self.held.get(&lock(binding, tenant, name)).copied()
    }

    /// Releases all locks of a pass and returns them. The next holder sees the conclusion of this pass only if the
    /// caller has entered it into the cache before.
    pub fn release(&mut self, pass: PassId) -> Vec<Lock> {
        let free = self.held.extract_if(.., |_, holder| *holder == pass);
        free.map(|(lock, _)| lock).collect()
    }

    /// Moves a key from the queues of the locks `before` to those of the locks `busy`. The key keeps its place for a
    /// lock that is in both. Returns the locks that it left or waits for.
    fn wait(&mut self, key: &Key, tenant: &Arc<str>, before: &[String], busy: &[String]) -> Vec<Lock> {
        let left = before.iter().filter(|name| !busy.contains(name));
        let left: Vec<Lock> = left.map(|name| lock(&key.binding, tenant, name)).collect();
        for lock in &left {
            if let Some(queue) = self.waiting.get_mut(lock) {
                queue.retain(|waits| waits != key);
                if queue.is_empty() {
                    self.waiting.remove(lock);
                }
            }
        }
        let mut concerned = left;
        for name in busy {
            let lock = lock(&key.binding, tenant, name);
            let queue = self.waiting.entry(lock.clone()).or_default();
            if !queue.contains(key) {
                queue.push_back(key.clone());
            }
            concerned.push(lock);
        }
        concerned
    }

    /// The first waiting key of a free lock.
    fn next(&self, lock: &Lock) -> Option<&Key> {
        match self.held.contains_key(lock) {
            true => None,
            false => self.waiting.get(lock)?.front(),
        }
    }
}

fn lock(binding: &Arc<str>, tenant: &Arc<str>, name: &str) -> Lock {
    (binding.clone(), tenant.clone(), name.to_owned())
}

impl Controller {
    /// Releases all locks of a pass and enqueues the first waiting key of each.
    pub(super) fn unlock(&mut self, pass: PassId) {
        let free = self.locks.release(pass);
        self.enqueue_waiters(&free);
    }

    /// Makes a key whose pass ended wait for the locks that the pass found busy. A lock may have been released before
    /// the pass ended, so free locks are checked at once. A key that was forgotten meanwhile does not wait.
    pub(super) fn wait_for_locks(&mut self, key: &Key, busy: Vec<String>) {
        if let Some(state) = self.keys.get_mut(key) {
            let concerned = self.locks.wait(key, &state.tenant, &state.busy, &busy);
            state.busy = busy;
            self.enqueue_waiters(&concerned);
        }
    }

    /// Removes a forgotten key from the queues of its locks, so that it does not block the keys behind it.
    pub(super) fn leave_lock_queues(&mut self, key: &Key, gone: &KeyState) {
        let concerned = self.locks.wait(key, &gone.tenant, &gone.busy, &[]);
        self.enqueue_waiters(&concerned);
    }

    fn enqueue_waiters(&mut self, locks: &[Lock]) {
        for lock in locks {
            if let Some(key) = self.locks.next(lock).cloned() {
                self.enqueue(&key, Cause::Lock(lock.2.clone()));
            }
        }
    }
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
    fn a_lock_that_became_free_during_the_pass_that_found_it_busy_is_checked_at_once() {
        let (mut locks, tenant) = (Locks::default(), Arc::from("t"));
        let concerned = locks.wait(&key("late"), &tenant, &[], &["drain".into()]);
        assert_eq!(locks.next(&concerned[0]), Some(&key("late")));
    }
}
