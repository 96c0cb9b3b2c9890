//! The order of keys: each key is queued at most once, tenant queues take turns, and timers fire in the order of
//! their times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::key::Key;
use crate::time::Boot;

/// Keys that wait for their turn, and keys that wait for a timer.
#[derive(Debug, Default)]
pub struct Queue {
    ready: BTreeMap<Arc<str>, TenantQueue>,
    /// The tenant queues with ready keys, in the order in which they are served.
    order: BTreeMap<Ticket, Arc<str>>,
    /// Where each ready key stands. So a key that is forgotten leaves without a look at the others.
    queued: BTreeMap<Key, (Arc<str>, Ticket)>,
    last_ticket: Ticket,
    timers: BTreeSet<(Boot, Key)>,
    deadlines: BTreeMap<Key, Boot>,
}

/// A place in an order. A later one is larger.
type Ticket = u64;

/// The ready keys of a tenant queue; there is at least one.
#[derive(Debug)]
struct TenantQueue {
    /// Its place in [`Queue::order`].
    turn: Ticket,
    keys: BTreeMap<Ticket, Key>,
}

impl Queue {
    /// Adds a key to its tenant queue, unless it is queued already. Drops the timer of the key, because the coming
    /// pass sets a new one.
    pub fn push(&mut self, tenant: &Arc<str>, key: Key) {
        self.cancel(&key);
        if self.queued.contains_key(&key) {
            return;
        }
        let ticket = self.ticket();
        self.queued.insert(key.clone(), (tenant.clone(), ticket));
        let tenant_queue = self.ready.entry(tenant.clone()).or_insert_with(|| {
            self.order.insert(ticket, tenant.clone());
            TenantQueue {
                turn: ticket,
                keys: BTreeMap::new(),
            }
        });
        tenant_queue.keys.insert(ticket, key);
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
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
        self.remove(key);
    }

    /// Removes a ready key, and its tenant queue if no other key of it is ready.
    fn remove(&mut self, key: &Key) {
        let Some((tenant, ticket)) = self.queued.remove(key) else {
            return;
        };
        let Some(tenant_queue) = self.ready.get_mut(&tenant) else {
            return;
        };
        tenant_queue.keys.remove(&ticket);
        if tenant_queue.keys.is_empty() {
            self.order.remove(&tenant_queue.turn);
            self.ready.remove(&tenant);
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

    /// Removes and returns the next key. Tenant queues take turns; one whose first key may not start now keeps its
    /// keys and goes to the end.
    pub fn pop(&mut self, mut may_start: impl FnMut(&Arc<str>, &Key) -> bool) -> Option<Key> {
        for _ in 0..self.order.len() {
            let (_, tenant) = self.order.pop_first()?;
            let turn = self.ticket();
            let tenant_queue = self.ready.get_mut(&tenant)?;
            let key = tenant_queue.keys.first_key_value()?.1.clone();
            let may_start = may_start(&tenant, &key);
            tenant_queue.turn = turn;
            self.order.insert(turn, tenant);
            if may_start {
                self.remove(&key);
                return Some(key);
            }
        }
        None
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

    #[test]
    fn later_deadline_does_not_delay_a_queued_key() {
        let mut queue = Queue::default();
        queue.push_at(Boot(10), key("a"));
        queue.push_at(Boot(20), key("a"));
        assert_eq!(queue.next_timer(), Some(Boot(10)));
        queue.push(&"t".into(), key("a"));
        queue.push_at(Boot(5), key("a"));
        assert_eq!(queue.next_timer(), None);
        assert_eq!(queue.pop(|_, _| true), Some(key("a")));
        assert_eq!(queue.pop(|_, _| true), None);
    }

    #[test]
    fn a_key_is_queued_at_most_once() {
        let mut queue = Queue::default();
        queue.push(&"t".into(), key("a"));
        queue.push(&"t".into(), key("a"));
        assert!(queue.pop(|_, _| true).is_some());
        assert!(queue.pop(|_, _| true).is_none());
    }

    #[test]
    fn one_tenant_with_many_keys_does_not_hold_up_another() {
        let mut queue = Queue::default();
        for i in 0..100 {
            queue.push(&"big".into(), key(&format!("big-{i}")));
        }
        queue.push(&"small".into(), key("small"));
        let order: Vec<Key> = std::iter::from_fn(|| queue.pop(|_, _| true)).take(2).collect();
        assert_eq!(order[1], key("small"));
    }

    #[test]
    fn a_tenant_at_its_limit_is_passed_over() {
        let mut queue = Queue::default();
        queue.push(&"full".into(), key("a"));
        queue.push(&"free".into(), key("b"));
        assert_eq!(queue.pop(|tenant, _| &**tenant != "full"), Some(key("b")));
        assert_eq!(queue.pop(|tenant, _| &**tenant != "full"), None);
        assert_eq!(queue.pop(|_, _| true), Some(key("a")));
    }

    #[test]
    fn a_key_that_leaves_is_nowhere_any_more_and_the_others_keep_their_order() {
        let mut queue = Queue::default();
        let tenants = ["t", "u", "v"];
        for n in 0..9 {
            queue.push(&tenants[n % 3].into(), key(&n.to_string()));
        }
        // `u` has had its turn and goes to the end; then all keys of `v` are forgotten.
        assert_eq!(queue.pop(|tenant, _| &**tenant == "u"), Some(key("1")));
        for n in [2, 5, 8, 4] {
            queue.forget(&key(&n.to_string()));
        }
        let standing = |queue: &Queue| {
            let ready: usize = queue.ready.values().map(|tenant| tenant.keys.len()).sum();
            (queue.queued.len(), ready, queue.ready.len(), queue.order.len())
        };
        assert_eq!(standing(&queue), (4, 4, 2, 2));
        let rest: Vec<Key> = std::iter::from_fn(|| queue.pop(|_, _| true)).collect();
        assert_eq!(rest, ["0", "7", "3", "6"].map(key));
        assert_eq!(standing(&queue), (0, 0, 0, 0));
    }

    #[test]
    fn a_forgotten_key_does_not_delay_the_keys_behind_it() {
        let mut queue = Queue::default();
        for (tenant, name) in [("t", "a"), ("t", "b"), ("u", "c")] {
            queue.push(&tenant.into(), key(name));
        }
        queue.push_at(Boot(7), key("d"));
        for name in ["a", "c", "d"] {
            queue.forget(&key(name));
            assert!(!queue.is_queued(&key(name)));
        }
        assert_eq!((queue.next_timer(), queue.order.len()), (None, 1));
        assert_eq!(queue.pop(|_, _| true), Some(key("b")));
        assert_eq!(queue.pop(|_, _| true), None);
    }
}
