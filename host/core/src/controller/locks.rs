//! Mutual exclusion between passes of one binding and tenant.
//!
//! Who was told that a lock is busy stands in line for it until a pass of its asks no more, or gets it. When a lock is free,
//! the first in line is looked at again; a pass that comes by itself meanwhile may take it all the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Controller;
use super::keys::KeyState;
use crate::contract::Cause;
use crate::key::{Key, PassId};

/// A lock: of which binding and tenant, and its name.
pub type Lock = (Arc<str>, Arc<str>, String);

/// What a policy is answered that asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAnswer {
    /// Its pass holds the lock from now on.
    Held,
    /// Another pass holds it.
    Busy,
}

impl LockAnswer {
    /// As the contract has it.
    pub(crate) fn json(self) -> &'static str {
        match self {
            LockAnswer::Held => "\"held\"",
            LockAnswer::Busy => "\"busy\"",
        }
    }
}

/// Who holds which lock, and who waits. A crash forgets all of it, which releases all of it.
#[derive(Debug, Default)]
pub struct Locks {
    held: BTreeMap<Lock, PassId>,
    /// In the order in which they were told that it is busy.
    waiting: BTreeMap<Lock, VecDeque<Key>>,
}

impl Locks {
    /// Takes a lock for a pass: true if the pass holds it now.
    pub fn take(&mut self, binding: &Arc<str>, tenant: &Arc<str>, name: &str, pass: PassId) -> bool {
        let holder = self.held.entry(lock(binding, tenant, name)).or_insert(pass);
        *holder == pass
    }

    /// The pass that holds a lock.
    pub fn holder(&self, binding: &Arc<str>, tenant: &Arc<str>, name: &str) -> Option<PassId> {
        self.held.get(&lock(binding, tenant, name)).copied()
    }

    /// Releases everything a pass holds: its publication is acknowledged and in the cache. Says what that was.
    pub fn release(&mut self, pass: PassId) -> Vec<Lock> {
        let free = self.held.extract_if(.., |_, holder| *holder == pass);
        free.map(|(lock, _)| lock).collect()
    }

    /// A key that stood in line for the locks `before` of its binding and tenant waits for the locks `busy`. It keeps its
    /// place in the lines of both. Says which locks that concerns.
    fn wait(&mut self, key: &Key, tenant: &Arc<str>, before: &[String], busy: &[String]) -> Vec<Lock> {
        let left = before.iter().filter(|name| !busy.contains(name));
        let left: Vec<Lock> = left.map(|name| lock(&key.binding, tenant, name)).collect();
        for lock in &left {
            if let Some(line) = self.waiting.get_mut(lock) {
                line.retain(|waits| waits != key);
                if line.is_empty() {
                    self.waiting.remove(lock);
                }
            }
        }
        let mut concerned = left;
        for name in busy {
            let lock = lock(&key.binding, tenant, name);
            let line = self.waiting.entry(lock.clone()).or_default();
            if !line.contains(key) {
                line.push_back(key.clone());
            }
            concerned.push(lock);
        }
        concerned
    }

    /// Who is first in line for a lock that is free.
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
    /// A pass gives up what it holds.
    pub(super) fn unlock(&mut self, pass: PassId) {
        let free = self.locks.release(pass);
        self.wake_waiters(&free);
    }

    /// A pass of a key has ended, which was told that these locks are busy: they may be free by now. A key that was
    /// forgotten meanwhile waits for nothing.
    pub(super) fn waits_for_locks(&mut self, key: &Key, busy: Vec<String>) {
        if let Some(state) = self.keys.get_mut(key) {
            let concerned = self.locks.wait(key, &state.tenant, &state.busy, &busy);
            state.busy = busy;
            self.wake_waiters(&concerned);
        }
    }

    /// A key is gone: it makes place in the lines in which it stood.
    pub(super) fn waits_no_more(&mut self, key: &Key, gone: &KeyState) {
        let concerned = self.locks.wait(key, &gone.tenant, &gone.busy, &[]);
        self.wake_waiters(&concerned);
    }

    fn wake_waiters(&mut self, locks: &[Lock]) {
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
    fn who_was_told_first_that_a_lock_is_busy_is_looked_at_first_when_it_is_free() {
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
        // It asks no more: the next one is looked at.
        let left = locks.wait(&key("first"), &tenant, &busy, &[]);
        assert_eq!(left.first(), Some(&drain));
        assert_eq!(locks.next(&drain), Some(&key("second")));
        locks.wait(&key("second"), &tenant, &busy, &[]);
        assert_eq!(locks.next(&drain), None);
        assert!(
            locks.waiting.is_empty(),
            "nothing is kept of a line that is empty"
        );
    }

    #[test]
    fn a_lock_that_came_free_while_a_pass_was_told_that_it_is_busy_concerns_it_at_once() {
        let (mut locks, tenant) = (Locks::default(), Arc::from("t"));
        let concerned = locks.wait(&key("late"), &tenant, &[], &["drain".into()]);
        assert_eq!(locks.next(&concerned[0]), Some(&key("late")));
    }
}
