//! Mutual exclusion between passes of one binding and tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::key::PassId;

/// Who holds which lock. A crash forgets all of it, which releases all of it.
#[derive(Debug, Default)]
pub struct Locks {
    held: BTreeMap<(Arc<str>, String, String), PassId>,
}

impl Locks {
    /// Takes a lock for a pass: true if the pass holds it now.
    pub fn take(&mut self, binding: &Arc<str>, tenant: &str, name: &str, pass: PassId) -> bool {
        let holder = self
            .held
            .entry((binding.clone(), tenant.to_owned(), name.to_owned()))
            .or_insert(pass);
        *holder == pass
    }

    /// The pass that holds a lock.
    pub fn holder(&self, binding: &Arc<str>, tenant: &str, name: &str) -> Option<PassId> {
        let lock = (binding.clone(), tenant.to_owned(), name.to_owned());
        self.held.get(&lock).copied()
    }

    /// Releases everything a pass holds: its publication is acknowledged and in the cache.
    pub fn release(&mut self, pass: PassId) {
        if !self.held.is_empty() {
            self.held.retain(|_, holder| *holder != pass);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_busy_until_its_pass_ends() {
        let (mut locks, binding) = (Locks::default(), Arc::from("b"));
        assert!(locks.take(&binding, "t", "drain", PassId(1)));
        assert!(locks.take(&binding, "t", "drain", PassId(1)));
        assert!(!locks.take(&binding, "t", "drain", PassId(2)));
        assert_eq!(locks.holder(&binding, "t", "drain"), Some(PassId(1)));
        assert!(locks.take(&binding, "other tenant", "drain", PassId(2)));
        locks.release(PassId(1));
        assert!(locks.take(&binding, "t", "drain", PassId(2)));
    }
}
