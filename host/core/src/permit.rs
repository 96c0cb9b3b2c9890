//! Mutual exclusion between passes of one binding and tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::key::PassId;

/// Who holds which permit. A crash forgets all of it, which releases all of it.
#[derive(Debug, Default)]
pub struct Permits {
    held: BTreeMap<(Arc<str>, String, String), PassId>,
}

impl Permits {
    /// Takes a permit for a pass: true if the pass holds it now.
    pub fn take(&mut self, binding: &Arc<str>, tenant: &str, name: &str, pass: PassId) -> bool {
        let holder = self
            .held
            .entry((binding.clone(), tenant.to_owned(), name.to_owned()))
            .or_insert(pass);
        *holder == pass
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
    fn a_permit_is_busy_until_its_pass_ends() {
        let (mut permits, binding) = (Permits::default(), Arc::from("b"));
        assert!(permits.take(&binding, "t", "drain", PassId(1)));
        assert!(permits.take(&binding, "t", "drain", PassId(1)));
        assert!(!permits.take(&binding, "t", "drain", PassId(2)));
        assert!(permits.take(&binding, "other tenant", "drain", PassId(2)));
        permits.release(PassId(1));
        assert!(permits.take(&binding, "t", "drain", PassId(2)));
    }
}
