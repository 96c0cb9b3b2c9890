//! Turns and places for tenant queues.
//!
//! A tenant queue is a binding and a tenant. The one that has spent least comes next, and it is charged with what its work
//! really took once that is known. A tenant queue that was idle begins where the others are, so that none saves up turns. None
//! holds all places, so that a new one finds a place that is free or soon free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// More tenant queues than this are not remembered once they are idle.
const REMEMBERED: usize = 1_024;

/// The number of an item. The items of a tenant queue have their turns in the order of their numbers.
pub type Ticket = u64;

/// Items that wait for a place, and the places that are held.
#[derive(Debug)]
pub struct FairQueue<T> {
    queues: BTreeMap<Arc<str>, TenantQueue<T>>,
    /// The tenant queues with items that wait, by what they have spent.
    order: BTreeSet<(u64, Arc<str>)>,
    /// The most that a tenant queue had spent when it had its turn.
    clock: u64,
    held: u64,
    last_ticket: Ticket,
}

#[derive(Debug)]
struct TenantQueue<T> {
    held: u64,
    spent: u64,
    waiting: BTreeMap<Ticket, T>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        FairQueue {
            queues: BTreeMap::new(),
            order: BTreeSet::new(),
            clock: 0,
            held: 0,
            last_ticket: 0,
        }
    }
}

/// A number of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// All of them.
    pub all: u64,
    /// The most that one tenant queue holds.
    pub of_one: u64,
}

impl Default for Quota {
    /// One place: whoever is left gets it.
    fn default() -> Self {
        Quota::new(1)
    }
}

impl Quota {
    /// As many as anybody wants.
    pub const UNBOUNDED: Quota = Quota {
        all: u64::MAX,
        of_one: u64::MAX,
    };

    /// So many places, and at least one. One, and a quarter of them, are kept for other tenant queues.
    pub fn new(all: u64) -> Self {
        Quota::keeping(all, all / 4)
    }

    /// So many places, half of which are kept for other tenant queues: calls that hold them take long.
    pub fn halved(all: u64) -> Self {
        Quota::keeping(all, all / 2)
    }

    fn keeping(all: u64, kept: u64) -> Self {
        let all = all.max(1);
        Quota {
            all,
            of_one: all.saturating_sub(kept.max(1)).max(1),
        }
    }
}

impl<T> FairQueue<T> {
    /// Adds an item behind the others of its tenant queue. Returns its number.
    pub fn push(&mut self, name: &Arc<str>, item: T) -> Ticket {
        self.last_ticket += 1;
        self.put(name, self.last_ticket, item);
        self.last_ticket
    }

    /// Adds an item in the place of its number: one that had its turn and could not use it comes before later ones.
    pub fn put(&mut self, name: &Arc<str>, ticket: Ticket, item: T) {
        let queue = self.queues.entry(name.clone()).or_insert_with(|| TenantQueue {
            held: 0,
            spent: 0,
            waiting: BTreeMap::new(),
        });
        if queue.waiting.is_empty() {
            if queue.held == 0 {
                queue.spent = queue.spent.max(self.clock);
            }
            self.order.insert((queue.spent, name.clone()));
        }
        queue.waiting.insert(ticket, item);
    }

    /// Gives a place to the next item, if one is free.
    pub fn next(&mut self, places: Quota) -> Option<(Arc<str>, Ticket, T)> {
        let is_free = self.held < places.all;
        is_free.then(|| self.next_of(|_, held, _| held < places.of_one))?
    }

    /// Whether there is a place for an item that waits.
    pub fn has_next(&self, places: Quota) -> bool {
        self.held < places.all && self.first(|_, held, _| held < places.of_one).is_some()
    }

    /// Gives a place to the first item of the next tenant queue that may take one: by name, by the places that it holds, and by
    /// the item.
    pub fn next_of(
        &mut self,
        may_take: impl Fn(&Arc<str>, u64, &T) -> bool,
    ) -> Option<(Arc<str>, Ticket, T)> {
        let (spent, name) = self.first(may_take)?.clone();
        let queue = self.queues.get_mut(&name)?;
        let (ticket, item) = queue.waiting.pop_first()?;
        self.order.remove(&(spent, name.clone()));
        self.clock = self.clock.max(spent);
        self.held += 1;
        queue.held += 1;
        queue.spent = spent.saturating_add(1);
        if !queue.waiting.is_empty() {
            self.order.insert((queue.spent, name.clone()));
        }
        Some((name, ticket, item))
    }

    /// The next tenant queue that may take a place.
    fn first(&self, may_take: impl Fn(&Arc<str>, u64, &T) -> bool) -> Option<&(u64, Arc<str>)> {
        self.order.iter().find(|(_, name)| {
            let queue = self.queues.get(name);
            let first = queue.and_then(|queue| Some((queue.held, queue.waiting.first_key_value()?.1)));
            first.is_some_and(|(held, first)| may_take(name, held, first))
        })
    }

    /// Gives a place back, and charges its tenant queue with so much beside the place itself.
    pub fn end(&mut self, name: &Arc<str>, cost: u64) {
        self.charge(name, cost);
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        self.held = self.held.saturating_sub(1);
        queue.held = queue.held.saturating_sub(1);
        if self.queues.len() > REMEMBERED {
            self.queues
                .retain(|_, queue| queue.held > 0 || !queue.waiting.is_empty());
        }
    }

    /// Charges a tenant queue: its next turn comes later by so much.
    pub fn charge(&mut self, name: &Arc<str>, cost: u64) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let waits = self.order.remove(&(queue.spent, name.clone()));
        queue.spent = queue.spent.saturating_add(cost);
        if waits {
            self.order.insert((queue.spent, name.clone()));
        }
    }

    /// Removes an item that waits.
    pub fn remove(&mut self, name: &Arc<str>, ticket: Ticket) -> Option<T> {
        let queue = self.queues.get_mut(name)?;
        let item = queue.waiting.remove(&ticket)?;
        if queue.waiting.is_empty() {
            self.order.remove(&(queue.spent, name.clone()));
        }
        Some(item)
    }

    /// Whether nothing waits and no place is held.
    pub fn is_empty(&self) -> bool {
        self.held == 0 && self.order.is_empty()
    }

    /// The places that a tenant queue holds.
    pub fn held_by(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, |queue| queue.held)
    }

    /// The places that are held.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// How many items have their turns before a new one of this tenant queue, if each costs the place alone. Of the other tenant
    /// queues those count that may take a place.
    pub fn before(&self, name: &str, may_take: impl Fn(&Arc<str>) -> bool) -> usize {
        let own = self.queues.get(name);
        let (spent, waiting) = own.map_or((self.clock, 0), |own| {
            let begins = if own.waiting.is_empty() && own.held == 0 {
                self.clock
            } else {
                0
            };
            (own.spent.max(begins), own.waiting.len())
        });
        let turn = spent.saturating_add(waiting as u64);
        let others = self
            .order
            .iter()
            .filter(|(_, other)| **other != *name && may_take(other));
        let of_other = |(spent, other): &(u64, Arc<str>)| {
            let turns = (turn + 1).saturating_sub(*spent);
            self.waiting_of(other)
                .min(usize::try_from(turns).unwrap_or(usize::MAX))
        };
        waiting + others.map(of_other).sum::<usize>()
    }

    /// The items of a tenant queue that wait.
    pub fn waiting_of(&self, name: &str) -> usize {
        self.queues.get(name).map_or(0, |queue| queue.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(queue: &mut FairQueue<u32>, name: &str, count: u32) {
        for item in 0..count {
            queue.push(&name.into(), item);
        }
    }

    fn names(queue: &mut FairQueue<u32>, places: Quota) -> Vec<Arc<str>> {
        let next = || {
            let has_next = queue.has_next(places);
            let next = queue.next(places);
            assert_eq!(has_next, next.is_some(), "{places:?}");
            Some(next?.0)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn no_tenant_queue_holds_all_places_and_there_is_always_one() {
        for (all, of_one, of_half) in [(1, 1, 1), (2, 1, 1), (3, 2, 2), (8, 6, 4), (16, 12, 8)] {
            assert_eq!(
                (Quota::new(all).of_one, Quota::halved(all).of_one),
                (of_one, of_half)
            );
            let mut queue = FairQueue::default();
            come(&mut queue, "a", 40);
            assert_eq!(names(&mut queue, Quota::new(all)).len() as u64, of_one);
            come(&mut queue, "b", 40);
            let others = names(&mut queue, Quota::new(all));
            assert_eq!(others.len() as u64, all - of_one);
            assert!(others.iter().all(|name| &**name == "b"), "{others:?}");
        }
        assert_eq!(Quota::new(0), Quota::new(1));
    }

    #[test]
    fn the_tenant_queue_that_has_spent_least_is_next_and_items_keep_their_order() {
        let (mut queue, one) = (FairQueue::default(), Quota::new(1));
        come(&mut queue, "a", 3);
        come(&mut queue, "b", 3);
        let mut order = Vec::new();
        while let Some((name, _, item)) = queue.next(one) {
            queue.end(&name, if &*name == "a" { 10 } else { 3 });
            order.push(format!("{name}{item}"));
        }
        assert_eq!(order, ["a0", "b0", "b1", "b2", "a1", "a2"]);
    }

    #[test]
    fn whoever_was_idle_has_saved_up_no_turns() {
        let (mut queue, one) = (FairQueue::default(), Quota::new(1));
        come(&mut queue, "a", 5);
        for _ in 0..3 {
            let (name, ..) = queue.next(one).expect("an item");
            queue.end(&name, 99);
        }
        come(&mut queue, "b", 5);
        let mut taken = Vec::new();
        while let Some((name, ..)) = queue.next(one) {
            queue.end(&name, 99);
            taken.push(name);
        }
        assert_eq!(
            taken[..4].iter().filter(|name| &***name == "b").count(),
            2,
            "{taken:?}"
        );
    }

    #[test]
    fn who_could_not_begin_comes_before_those_who_came_later() {
        let (mut queue, one) = (FairQueue::default(), Quota::new(1));
        come(&mut queue, "a", 2);
        let (name, ticket, item) = queue.next(one).expect("an item");
        queue.end(&name, 0);
        queue.put(&name, ticket, item);
        let again = queue.next(one).map(|(_, ticket, item)| (ticket, item));
        assert_eq!(again, Some((ticket, item)));
    }

    #[test]
    fn tenant_queues_that_hold_nothing_are_forgotten_where_they_are_many() {
        let mut queue = FairQueue::default();
        let names: Vec<Arc<str>> = (0..REMEMBERED + 10).map(|n| n.to_string().into()).collect();
        for name in &names {
            queue.push(name, 0);
        }
        while queue.next(Quota::UNBOUNDED).is_some() {}
        names.iter().for_each(|name| queue.end(name, 1));
        assert_eq!(queue.queues.len(), REMEMBERED);
    }

    #[test]
    fn what_leaves_is_nowhere_any_more() {
        let mut queue = FairQueue::default();
        let ticket = queue.push(&"a".into(), 1);
        assert_eq!((queue.waiting_of("a"), queue.is_empty()), (1, false));
        assert_eq!(queue.remove(&"a".into(), ticket), Some(1));
        assert_eq!(queue.remove(&"a".into(), ticket), None);
        assert!(queue.is_empty() && queue.next(Quota::UNBOUNDED).is_none());
    }
}
