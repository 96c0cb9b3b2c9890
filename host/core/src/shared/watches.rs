//! Watches: how many of them the questions of policies may open.
//!
//! A watch costs a stream at the API server, and the objects of its scope in memory. It stays open for a while after
//! the last key that depends on it. Policies choose scopes, for example by the name of a node, so each tenant queue has a
//! limit, and all of them together have one. The watches of primaries are chosen by bindings and do not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::scope::Scope;

/// The most watches of all tenant queues. An API server bears some thousand streams of one client.
const ALL: usize = 1_024;
/// The most watches of one tenant queue: half of all. A tenant that drains some hundred nodes at once needs one for each.
const OF_ONE: usize = ALL / 2;
/// So many watches a tenant queue may open although all tenant queues together have as many as they may. So two of them
/// cannot keep a third one from looking at anything.
const OF_EACH: usize = 16;

/// The scopes that questions opened, each with the tenant queue that did. A scope counts for this tenant queue until it
/// closes, also if others depend on it.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    opened: BTreeMap<Scope, Arc<str>>,
    counts: BTreeMap<Arc<str>, usize>,
}

impl Watches {
    /// Whether a tenant queue may open one more scope, after `more` that are about to be opened for it.
    pub(crate) fn has_room(&self, tenant_queue: &Arc<str>, more: usize) -> bool {
        let of_queue = self.count(tenant_queue) + more;
        of_queue < OF_EACH || (of_queue < OF_ONE && self.opened.len() + more < ALL)
    }

    /// Whether room becomes scarce for the tenant queue that opened a scope. Scopes without dependents then close early.
    pub(crate) fn is_crowded(&self, scope: &Scope) -> bool {
        let of_queue = self.opened.get(scope).map(|queue| self.count(queue));
        of_queue.is_some_and(|count| count >= OF_ONE / 2 || self.opened.len() >= ALL / 2)
    }

    /// Counts a scope that was opened for a tenant queue.
    pub(crate) fn open(&mut self, scope: &Scope, tenant_queue: &Arc<str>) {
        self.close(scope);
        self.opened.insert(scope.clone(), tenant_queue.clone());
        *self.counts.entry(tenant_queue.clone()).or_default() += 1;
    }

    /// Counts a closed scope no more.
    pub(crate) fn close(&mut self, scope: &Scope) {
        let Some(queue) = self.opened.remove(scope) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&queue) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&queue);
            }
        }
    }

    fn count(&self, tenant_queue: &Arc<str>) -> usize {
        self.counts.get(tenant_queue).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Kind;

    fn scope(number: usize) -> Scope {
        Scope {
            kind: Kind {
                api_version: "v1".into(),
                kind: "Pod".into(),
            },
            namespace: None,
            name: None,
            node: Some(format!("node-{number}")),
            fields: Vec::new(),
        }
    }

    /// Watches of which each of these tenant queues opened so many.
    fn opened(queues: &[(&str, usize)]) -> Watches {
        let mut watches = Watches::default();
        let mut number = 0;
        for (queue, count) in queues {
            for _ in 0..*count {
                number += 1;
                watches.open(&scope(number), &Arc::from(*queue));
            }
        }
        watches
    }

    #[test]
    fn a_tenant_queue_opens_so_many_watches_and_one_that_has_few_always_gets_one() {
        for (queues, more, may) in [
            (&[("a", OF_ONE - 1)][..], 0, true),
            (&[("a", OF_ONE - 1)], 1, false),
            (&[("a", OF_ONE)], 0, false),
            (&[("b", OF_ONE)], OF_ONE - 1, true),
            (&[("b", OF_ONE), ("c", OF_ONE - 20), ("a", 19)], 0, true),
            (&[("b", OF_ONE), ("c", OF_ONE - 20), ("a", 19)], 1, false),
            (&[("b", OF_ONE), ("c", OF_ONE), ("a", OF_EACH - 1)], 0, true),
            (&[("b", OF_ONE), ("c", OF_ONE), ("a", OF_EACH)], 0, false),
        ] {
            let watches = opened(queues);
            assert_eq!(watches.has_room(&"a".into(), more), may, "{queues:?} {more}");
        }
    }

    #[test]
    fn a_scope_counts_once_until_it_closes() {
        let mut watches = opened(&[("a", OF_ONE)]);
        watches.open(&scope(1), &"a".into());
        watches.close(&scope(1));
        watches.close(&scope(1));
        assert!(watches.has_room(&"a".into(), 0));
        assert!(!watches.has_room(&"a".into(), 1));
        (2..=OF_ONE).for_each(|number| watches.close(&scope(number)));
        assert!(watches.opened.is_empty() && watches.counts.is_empty());
    }

    #[test]
    fn half_of_what_may_be_open_is_crowded() {
        for (queues, is_crowded) in [
            (&[("a", OF_ONE / 2 - 1)][..], false),
            (&[("a", OF_ONE / 2)], true),
            (&[("a", 1), ("b", ALL / 2 - 2)], false),
            (&[("a", 1), ("b", ALL / 2 - 1)], true),
        ] {
            let watches = opened(queues);
            assert_eq!(watches.is_crowded(&scope(1)), is_crowded, "{queues:?}");
            assert!(!watches.is_crowded(&scope(0)), "a binding opened it");
        }
    }
}
