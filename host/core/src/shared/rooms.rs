//! Rooms: the resources that all passes share. Each tenant queue gets its share of every room.
//!
//! A tenant queue is a binding and a tenant. Each room serves the tenant queue that has spent least of the room
//! (least virtual time). A call is charged with its expected cost when it begins, and with its real cost when it
//! ends. A tenant queue that was idle begins at the virtual time of the others, so that no tenant queue saves up
//! turns. No tenant queue fills a room, so that a new one finds a place that is free or soon free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::guards::{Guard, Guards};
use super::waiter::Waiter;
use crate::binding::Binding;
use crate::call::{Call, Reply};
use crate::contract::Step;
use crate::key::PassId;

/// Steps of at least this fuel are long: about a millisecond. Long steps leave one thread free for short ones.
const LONG: u64 = 1_000_000;
/// The smallest fuel that a step is charged with. It limits how many steps are sent to the threads at once: there
/// tenant queues take turns, whatever they have spent.
const SHORTEST: u64 = 20_000;
/// The fuel charged for a byte that is copied into a policy or out of it.
const PER_BYTE: u64 = 2;
/// The expected cost falls by this part with each step that takes less. So a tenant queue that takes a long step once in
/// a hundred gets no more than one of them at a time: two would leave no thread to the others.
const REMEMBERS: u64 = 64;
/// A room with more tenant queues than this forgets those that are idle.
const REMEMBERED: usize = 1_024;
/// The most Events of a tenant queue that wait: those of sixteen passes that each say as much as a pass may. Policies can
/// say more than the API server takes, and the writes of the tenant queue wait behind its Events.
const EVENTS: usize = 256;

/// What is shared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// The threads that call policies and render answers.
    Threads,
    /// Reads of the API server.
    Reads,
    /// Writes to the API server.
    Writes,
    /// The cloud of a binding.
    Cloud(Arc<str>),
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Room::Threads => f.write_str("a thread for its policy"),
            Room::Reads => f.write_str("room to read from the API server"),
            Room::Writes => f.write_str("room to write to the API server"),
            Room::Cloud(_) => f.write_str("room at its cloud: spec.limits.cloudCalls are in flight"),
        }
    }
}

/// The sizes of the rooms that all bindings share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomSizes {
    /// The number of threads that call policies.
    pub threads: u32,
    /// The largest number of reads in flight at the API server.
    pub reads: u32,
    /// The largest number of writes in flight at the API server.
    pub writes: u32,
}

impl Default for RoomSizes {
    /// Sizes that even a slow API server can bear from one client.
    fn default() -> Self {
        RoomSizes {
            threads: 2,
            reads: 16,
            writes: 16,
        }
    }
}

/// A place in a room that a call holds.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    room: Room,
    queue: Arc<str>,
    /// The part of the room's capacity that the place takes while it is held.
    size: u64,
    /// The virtual time that the tenant queue was charged in advance.
    charged: u64,
    /// Whether this is what the steps before took. Then its real cost is what the next step may take.
    is_guess: bool,
    is_long: bool,
}

impl Reservation {
    pub(crate) fn tenant_queue(&self) -> &Arc<str> {
        &self.queue
    }

    /// Whether the call is expected to hold a thread for long.
    pub(crate) fn is_long(&self) -> bool {
        self.is_long
    }
}

/// All rooms.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    sizes: RoomSizes,
    rooms: BTreeMap<Room, Places>,
    /// Where each pass waits. So a pass that ends leaves its queues without a look at the other waiters.
    waiting: BTreeMap<PassId, BTreeMap<Ticket, (Room, Arc<str>)>>,
    last_ticket: Ticket,
    guards: Guards,
}

/// The number of a waiter. Those of a tenant queue are served in the order of their numbers.
pub(crate) type Ticket = u64;

/// The places of a room.
#[derive(Debug)]
struct Places {
    capacity: u64,
    in_use: u64,
    /// The number of long steps in flight.
    long: u32,
    /// The latest virtual time at which a tenant queue was served. Idle tenant queues continue from here.
    clock: u64,
    queues: BTreeMap<Arc<str>, TenantQueue>,
    /// The tenant queues with waiters, in the order of their virtual time.
    order: BTreeSet<(u64, Arc<str>)>,
}

#[derive(Debug, Default)]
struct TenantQueue {
    in_use: u64,
    /// Virtual time.
    spent: u64,
    /// The fuel that its next step is expected to take.
    expected: u64,
    waiting: BTreeMap<Ticket, Waiter>,
    /// The Events among the waiters.
    events: BTreeSet<Ticket>,
}

/// The room in which a call takes a place. Calls for the lease have none: waiting could lose the lease.
pub(crate) fn room_of(call: &Call, binding: &str) -> Option<Room> {
    match call {
        Call::Step { .. } | Call::Decide { .. } | Call::Draft(_) => Some(Room::Threads),
        Call::Read(_) => Some(Room::Reads),
        Call::Write(_) | Call::Mint(_) | Call::Revoke { .. } => Some(Room::Writes),
        Call::Cloud(_)
        | Call::Prepare(_)
        | Call::Commit(_)
        | Call::Resolve { .. }
        | Call::Credential { .. } => Some(Room::Cloud(binding.into())),
        Call::Lease(_) => None,
    }
}

/// The real cost of a call at the threads, in fuel; `None` if it was not measured.
pub(crate) fn cost_of(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Stepped(reply) => {
            let stepped = reply.stepped.as_ref();
            let bytes = match stepped.map(|stepped| &stepped.outcome) {
                Some(Ok(Step::Pending(requests))) => requests.bytes(),
                Some(Ok(Step::Concluded { conclusion, .. })) => {
                    conclusion.patch.as_ref().map_or(0, |patch| patch.len() as u64)
                }
                _ => 0,
            };
            // A unit of fuel and a byte that is read take about the same time.
            let fuel = stepped
                .map_or(0, |stepped| stepped.fuel)
                .saturating_add(reply.read);
            Some(fuel.saturating_add(bytes.saturating_mul(PER_BYTE)))
        }
        Reply::Drafted(Ok(drafted)) => Some(drafted.cost),
        _ => None,
    }
}

impl Rooms {
    pub(crate) fn new(sizes: RoomSizes) -> Self {
        Rooms {
            sizes,
            ..Rooms::default()
        }
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn set_guards(&mut self, guards: Guards) {
        self.guards = guards;
    }

    /// Adds a waiter to a tenant queue.
    pub(crate) fn enqueue(&mut self, room: &Room, queue: &Arc<str>, binding: &Binding, waiter: Waiter) {
        let capacity = self.capacity(room, binding);
        self.rooms.entry(room.clone()).or_default().capacity = capacity;
        self.last_ticket += 1;
        self.put(room, queue, self.last_ticket, waiter);
    }

    /// Adds a waiter in the place of its number: one that was served and could not begin comes before those that came
    /// later.
    pub(crate) fn put(&mut self, room: &Room, queue: &Arc<str>, ticket: Ticket, waiter: Waiter) {
        if let Some(pass) = waiter.pass() {
            let of_pass = self.waiting.entry(pass).or_default();
            of_pass.insert(ticket, (room.clone(), queue.clone()));
        }
        let places = self.rooms.entry(room.clone()).or_default();
        places.push(queue, ticket, waiter);
    }

    /// Whether another Event of a tenant queue may wait for its write.
    pub(crate) fn takes_event(&self, queue: &Arc<str>) -> bool {
        let writes = self.rooms.get(&Room::Writes);
        let of_queue = writes.and_then(|places| places.queues.get(queue));
        of_queue.is_none_or(|of_queue| of_queue.events.len() < EVENTS)
    }

    fn capacity(&self, room: &Room, binding: &Binding) -> u64 {
        let capacity = match room {
            Room::Threads => u64::from(self.sizes.threads.max(1)) * 2 * LONG,
            Room::Reads => u64::from(self.sizes.reads),
            Room::Writes => u64::from(self.sizes.writes),
            Room::Cloud(_) => u64::from(binding.spec.limits.cloud_calls),
        };
        capacity.max(1)
    }

    /// Removes and returns the next waiter that fits into a room, with its place and its number.
    pub(crate) fn next(&mut self, room: &Room) -> Option<(Reservation, Ticket, Waiter)> {
        let places = self.rooms.get(room)?;
        let is_ready = |name: &&Arc<str>| {
            let head = places.queues.get(*name).and_then(TenantQueue::first);
            head.is_some_and(|(_, head)| places.takes(room, name, cost(head), places.capacity, self))
        };
        let name = places.order.iter().map(|(_, name)| name).find(is_ready)?.clone();
        let ticket = places.queues.get(&name)?.first()?.0;
        let places = self.rooms.get_mut(room)?;
        let waiter = places.remove(&name, ticket)?;
        let reservation = places.take(room, &name, cost(&waiter));
        if let Some(pass) = waiter.pass() {
            self.waits_no_more(pass, ticket);
        }
        Some((reservation, ticket, waiter))
    }

    fn waits_no_more(&mut self, pass: PassId, ticket: Ticket) {
        if let Some(of_pass) = self.waiting.get_mut(&pass) {
            of_pass.remove(&ticket);
            if of_pass.is_empty() {
                self.waiting.remove(&pass);
            }
        }
    }

    /// Gives a place back and returns its room. If the real cost was measured, the tenant queue is charged with it in
    /// place of the expected one.
    pub(crate) fn give_back(&mut self, reservation: Reservation, cost: Option<u64>) -> Room {
        if let Some(places) = self.rooms.get_mut(&reservation.room) {
            places.give_back(&reservation, cost);
        }
        reservation.room
    }

    /// Charges the tenant queue of a call with fuel that somebody else than its policies has spent on it. Its next
    /// steps come later by that much.
    pub(crate) fn charge(&mut self, reservation: &Reservation, fuel: u64) {
        if let Some(threads) = self.rooms.get_mut(&Room::Threads) {
            threads.charge(&reservation.queue, |spent| spent.saturating_add(fuel));
        }
    }

    /// Removes the waiters of a pass.
    pub(crate) fn forget(&mut self, pass: PassId) {
        for (ticket, (room, queue)) in self.waiting.remove(&pass).unwrap_or_default() {
            if let Some(places) = self.rooms.get_mut(&room) {
                places.remove(&queue, ticket);
            }
        }
    }

    /// The passes that wait for a place, each with its room.
    pub(crate) fn waiting(&self) -> BTreeMap<PassId, &Room> {
        let waiting = self.waiting.iter().flat_map(|(pass, of_pass)| {
            let rooms = of_pass.values().map(|(room, _)| room);
            rooms.max().map(|room| (*pass, room))
        });
        waiting.collect()
    }

    /// Removes the cloud rooms of bindings that are gone, once no call is in flight or waits in them.
    pub(crate) fn tidy(&mut self, is_bound: impl Fn(&str) -> bool) {
        self.rooms.retain(|room, places| match room {
            Room::Cloud(binding) => is_bound(binding) || places.in_use > 0 || !places.order.is_empty(),
            _ => true,
        });
    }

    /// Whether an Event waits for a place.
    pub(crate) fn has_events(&self) -> bool {
        let mut queues = self.rooms.values().flat_map(|places| places.queues.values());
        queues.any(|queue| !queue.events.is_empty())
    }

    /// Drops the Events that wait.
    pub(crate) fn drop_events(&mut self) {
        for places in self.rooms.values_mut() {
            let queues = places.queues.iter();
            let waiting = queues.filter(|(_, queue)| !queue.events.is_empty());
            let waiting: Vec<(Arc<str>, BTreeSet<Ticket>)> = waiting
                .map(|(name, queue)| (name.clone(), queue.events.clone()))
                .collect();
            for (name, events) in waiting {
                for ticket in events {
                    places.remove(&name, ticket);
                }
            }
        }
    }
}

impl TenantQueue {
    fn first(&self) -> Option<(Ticket, &Waiter)> {
        let (ticket, waiter) = self.waiting.first_key_value()?;
        Some((*ticket, waiter))
    }
}

/// The cost of a call at the threads, if it is known in advance.
fn cost(waiter: &Waiter) -> Option<u64> {
    match &*waiter.call {
        Call::Draft(draft) => Some(draft.cost()),
        _ => None,
    }
}

impl Default for Places {
    /// The room of a binding that is gone, for what comes back to it.
    fn default() -> Self {
        Places {
            capacity: 1,
            in_use: 0,
            long: 0,
            clock: 0,
            queues: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl Places {
    /// The cost that a tenant queue is charged when its call starts.
    fn expected(&self, room: &Room, queue: &str, cost: Option<u64>) -> u64 {
        match room {
            Room::Threads => {
                let expected = || self.queues.get(queue).map_or(0, |queue| queue.expected);
                cost.unwrap_or_else(expected).max(SHORTEST)
            }
            _ => 1,
        }
    }

    fn takes(&self, room: &Room, name: &Arc<str>, cost: Option<u64>, capacity: u64, rooms: &Rooms) -> bool {
        if !rooms.guards.stand(Guard::RoomsAreBounded) {
            return true;
        }
        let expected = self.expected(room, name, cost);
        let size = expected.min(LONG);
        let held = self.queues.get(name).map_or(0, |queue| queue.in_use);
        // A quarter of the room stays for the other tenant queues, and half of a cloud, whose calls are the longest. A
        // tenant queue that holds nothing may still take one place, however large: else a small room would never serve
        // it.
        let of_others = match room {
            Room::Cloud(_) => capacity / 2,
            _ => capacity.div_ceil(4),
        };
        let of_one = capacity - of_others;
        let has_share = held == 0 || held + size <= of_one;
        let long = rooms.sizes.threads.saturating_sub(1).max(1);
        let leaves_a_thread = *room != Room::Threads || expected < LONG || self.long < long;
        self.in_use + size <= capacity && has_share && leaves_a_thread
    }

    fn push(&mut self, name: &Arc<str>, ticket: Ticket, waiter: Waiter) {
        let queue = self.queues.entry(name.clone()).or_default();
        if queue.waiting.is_empty() {
            if queue.in_use == 0 {
                queue.spent = queue.spent.max(self.clock);
            }
            self.order.insert((queue.spent, name.clone()));
        }
        if waiter.is_event() {
            queue.events.insert(ticket);
        }
        queue.waiting.insert(ticket, waiter);
    }

    fn remove(&mut self, name: &Arc<str>, ticket: Ticket) -> Option<Waiter> {
        let queue = self.queues.get_mut(name)?;
        let waiter = queue.waiting.remove(&ticket)?;
        queue.events.remove(&ticket);
        if queue.waiting.is_empty() {
            self.order.remove(&(queue.spent, name.clone()));
        }
        Some(waiter)
    }

    /// Changes the virtual time of a tenant queue and its position in the order.
    fn charge(&mut self, name: &Arc<str>, spent: impl FnOnce(u64) -> u64) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let waits = self.order.remove(&(queue.spent, name.clone()));
        queue.spent = spent(queue.spent);
        if waits {
            self.order.insert((queue.spent, name.clone()));
        }
    }

    fn take(&mut self, room: &Room, name: &Arc<str>, cost: Option<u64>) -> Reservation {
        let charged = self.expected(room, name, cost);
        let (size, is_long) = (charged.min(LONG), *room == Room::Threads && charged >= LONG);
        self.in_use += size;
        self.long += u32::from(is_long);
        let queue = self.queues.entry(name.clone()).or_default();
        self.clock = self.clock.max(queue.spent);
        queue.in_use += size;
        self.charge(name, |spent| spent.saturating_add(charged));
        Reservation {
            room: room.clone(),
            queue: name.clone(),
            size,
            charged,
            is_guess: cost.is_none(),
            is_long,
        }
    }

    fn give_back(&mut self, reservation: &Reservation, cost: Option<u64>) {
        self.in_use = self.in_use.saturating_sub(reservation.size);
        self.long = self.long.saturating_sub(u32::from(reservation.is_long));
        let Some(queue) = self.queues.get_mut(&reservation.queue) else {
            return;
        };
        queue.in_use = queue.in_use.saturating_sub(reservation.size);
        if let Some(cost) = cost {
            if reservation.room == Room::Threads && reservation.is_guess && cost > 0 {
                queue.expected = cost.max(queue.expected - queue.expected / REMEMBERS);
            }
            let corrected = |spent: u64| spent.saturating_sub(reservation.charged).saturating_add(cost);
            self.charge(&reservation.queue, corrected);
        }
        if self.queues.len() > REMEMBERED {
            self.queues
                .retain(|_, queue| queue.in_use > 0 || !queue.waiting.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::fixture_binding;
    use crate::shared::waiter::Target;
    use std::time::Duration;

    /// A call of this pass.
    fn waiter(pass: u64) -> Waiter {
        Waiter {
            target: Target::Pass(PassId(pass), 0),
            ..event(Call::Lease(None))
        }
    }

    /// A call that nobody waits for.
    fn event(call: Call) -> Waiter {
        Waiter {
            target: Target::Nobody,
            call: Box::new(call),
            longest: Duration::from_millis(1),
            terms: None,
        }
    }

    struct House {
        rooms: Rooms,
        binding: Arc<Binding>,
        room: Room,
        last: u64,
    }

    impl House {
        fn of(room: Room, sizes: RoomSizes) -> Self {
            House {
                rooms: Rooms::new(sizes),
                binding: fixture_binding(&[]).into(),
                room,
                last: 0,
            }
        }

        fn come(&mut self, queue: &str, count: u64) {
            for _ in 0..count {
                self.last += 1;
                self.rooms
                    .enqueue(&self.room, &queue.into(), &self.binding, waiter(self.last));
            }
        }

        /// Those who get a place now, in their order.
        fn begin(&mut self) -> Vec<Reservation> {
            std::iter::from_fn(|| self.rooms.next(&self.room).map(|(reservation, ..)| reservation)).collect()
        }

        fn end(&mut self, reservation: Reservation, cost: u64) {
            self.rooms.give_back(reservation, Some(cost));
        }
    }

    fn queues(reservations: &[Reservation]) -> Vec<&str> {
        reservations
            .iter()
            .map(|reservation| &*reservation.queue)
            .collect()
    }

    fn sizes(threads: u32) -> RoomSizes {
        RoomSizes {
            threads,
            ..RoomSizes::default()
        }
    }

    #[test]
    fn no_tenant_queue_fills_a_room_and_the_room_is_bounded() {
        let mut house = House::of(Room::Writes, RoomSizes::default());
        house.come("greedy", 100);
        assert_eq!(house.begin().len(), 12);
        for queue in ["b", "c", "d", "e", "f"] {
            house.come(queue, 1);
        }
        assert_eq!(queues(&house.begin()), ["b", "c", "d", "e"]);
    }

    #[test]
    fn whoever_waits_is_told_for_what() {
        let rooms = [
            Room::Threads,
            Room::Reads,
            Room::Writes,
            Room::Cloud("any".into()),
        ];
        let told = rooms.map(|room| room.to_string());
        for (told, of) in told
            .iter()
            .zip(["thread", "read", "write", "spec.limits.cloudCalls"])
        {
            assert!(told.contains(of), "{told}");
        }
    }

    #[test]
    fn the_tenant_queue_that_has_spent_least_is_next() {
        let mut house = House::of(Room::Threads, sizes(1));
        house.come("dear", 3);
        house.come("cheap", 3);
        let mut order = Vec::new();
        while let Some((reservation, ..)) = house.rooms.next(&house.room) {
            let cost = if &*reservation.queue == "dear" {
                900_000
            } else {
                30_000
            };
            order.push(reservation.queue.to_string());
            house.end(reservation, cost);
        }
        assert_eq!(order, ["cheap", "dear", "cheap", "cheap", "dear", "dear"]);
    }

    #[test]
    fn what_a_driver_spends_on_a_call_of_the_cloud_is_paid_by_the_tenant_queue_of_the_call() {
        let mut house = House::of(Room::Threads, sizes(1));
        let cloud = Room::Cloud("aws".into());
        house
            .rooms
            .enqueue(&cloud, &"caller".into(), &house.binding, waiter(99));
        let (called, ..) = house.rooms.next(&cloud).expect("a place");
        house.come("caller", 2);
        house.come("other", 2);
        house.rooms.charge(&called, 900_000);
        let mut order = Vec::new();
        while let Some((reservation, ..)) = house.rooms.next(&house.room) {
            order.push(reservation.queue.to_string());
            house.end(reservation, 30_000);
        }
        assert_eq!(order, ["other", "other", "caller", "caller"]);
    }

    #[test]
    fn who_comes_back_has_saved_up_no_turns() {
        let mut house = House::of(Room::Threads, sizes(1));
        for _ in 0..10 {
            house.come("busy", 1);
            let reservation = house.begin().remove(0);
            house.end(reservation, 500_000);
        }
        house.come("rested", 10);
        house.come("busy", 1);
        let mut before = 0;
        while let Some((reservation, ..)) = house.rooms.next(&house.room) {
            if &*reservation.queue == "busy" {
                break;
            }
            before += 1;
            house.end(reservation, 500_000);
        }
        assert!(
            before <= 2,
            "{before} of the rested tenant queue came before the busy one"
        );
    }

    #[test]
    fn long_steps_leave_a_thread_free_and_short_ones_fill_it() {
        for cost in [20 * LONG, LONG] {
            let mut house = House::of(Room::Threads, sizes(2));
            for queue in ["long", "longer"] {
                house.come(queue, 1);
                let reservation = house.begin().remove(0);
                house.end(reservation, cost);
            }
            house.come("long", 5);
            house.come("longer", 5);
            assert_eq!(house.begin().len(), 1, "{cost}");
            house.come("short", 20);
            assert_eq!(house.begin().len(), 20, "{cost}");
        }
    }

    #[test]
    fn short_steps_keep_no_long_one_waiting() {
        let mut house = House::of(Room::Threads, sizes(2));
        house.come("long", 1);
        let reservation = house.begin().remove(0);
        house.end(reservation, LONG);
        house.come("short", 20);
        assert!(house.begin().iter().all(|reservation| !reservation.is_long()));
        house.come("long", 1);
        assert!(house.begin()[0].is_long());
    }

    #[test]
    fn short_steps_do_not_hide_that_a_tenant_queue_takes_long_ones() {
        let mut house = House::of(Room::Threads, sizes(3));
        // What took nothing at all says nothing of the next.
        for (cost, expected) in [(4 * LONG, 4 * LONG), (0, 4 * LONG), (1, 4 * LONG / 64 * 63)] {
            house.come("a", 1);
            let reservation = house.begin().remove(0);
            house.end(reservation, cost);
            assert_eq!(house.rooms.rooms[&house.room].queues["a"].expected, expected);
        }
        for _ in 0..80 {
            house.come("a", 1);
            let reservation = house.begin().remove(0);
            assert!(reservation.is_long());
            house.end(reservation, 1);
        }
    }

    #[test]
    fn what_is_drafted_says_nothing_of_the_next_step() {
        let mut house = House::of(Room::Threads, sizes(2));
        house.come("a", 1);
        let reservation = house.begin().remove(0);
        house.end(reservation, 4 * LONG);
        let waiter = event(Call::Draft(Box::new(draft(1))));
        house
            .rooms
            .enqueue(&house.room, &"a".into(), &house.binding, waiter);
        let reservation = house.begin().remove(0);
        house.end(reservation, 9);
        assert_eq!(house.rooms.rooms[&house.room].queues["a"].expected, 4 * LONG);
    }

    #[test]
    fn a_step_costs_its_fuel_and_the_bytes_that_it_reads_and_returns() {
        let stepped = |outcome| {
            let fuel = 90;
            cost_of(&Reply::Stepped(crate::worker::StepReply {
                read: 10,
                stepped: Some(crate::fault::Stepped { outcome, fuel }),
                ..crate::reconcile::fixture::unstepped()
            }))
        };
        let fault = crate::fault::Fault::new(crate::fault::FaultKind::Trap, "x");
        assert_eq!(stepped(Err(fault)), Some(100));
        let requests = crate::reconcile::fixture::pending(vec![crate::reconcile::fixture_stop()]);
        let Step::Pending(wanted) = &requests else {
            panic!("requests")
        };
        let bytes = wanted.bytes();
        assert_eq!(stepped(Ok(requests)), Some(100 + bytes * PER_BYTE));
        let conclusion = crate::reconcile::fixture::conclusion(serde_json::json!({"a": 1}));
        let concluded = Step::Concluded {
            verdict: None,
            conclusion,
        };
        assert_eq!(stepped(Ok(concluded)), Some(100 + 7 * PER_BYTE));
        assert_eq!(cost_of(&Reply::Objects(Ok(vec![]))), None);
    }

    #[test]
    fn no_tenant_queue_takes_more_than_half_of_a_cloud() {
        let mut house = House::of(Room::Cloud("b".into()), RoomSizes::default());
        Arc::make_mut(&mut house.binding).spec.limits.cloud_calls = 8;
        house.come("greedy", 100);
        assert_eq!(house.begin().len(), 4);
        ["b", "c"].into_iter().for_each(|queue| house.come(queue, 3));
        assert_eq!(queues(&house.begin()), ["b", "c", "b", "c"]);
    }

    #[test]
    fn a_cloud_is_a_room_of_its_binding() {
        let room = Room::Cloud("b".into());
        let mut house = House::of(room, RoomSizes::default());
        Arc::make_mut(&mut house.binding).spec.limits.cloud_calls = 1;
        house.come("a", 2);
        assert_eq!(house.begin().len(), 1);
    }

    #[test]
    fn the_cloud_of_a_binding_that_is_gone_is_forgotten_when_nothing_is_under_way() {
        let room = Room::Cloud("b".into());
        let mut house = House::of(room.clone(), RoomSizes::default());
        house.come("a", 1);
        house.rooms.tidy(|_| false);
        let reservation = house.begin().remove(0);
        house.rooms.tidy(|_| false);
        house.end(reservation, 1);
        house.rooms.tidy(|_| true);
        assert!(house.rooms.rooms.contains_key(&room));
        house.rooms.tidy(|_| false);
        assert!(house.rooms.rooms.is_empty());
    }

    #[test]
    fn a_pass_that_ended_waits_for_nothing() {
        let sizes = RoomSizes {
            reads: 1,
            ..RoomSizes::default()
        };
        let mut house = House::of(Room::Reads, sizes);
        house.come("a", 3);
        let reservation = house.begin().remove(0);
        house.rooms.forget(PassId(2));
        assert_eq!(house.rooms.waiting().keys().collect::<Vec<_>>(), [&PassId(3)]);
        house.rooms.forget(PassId(3));
        house.end(reservation, 1);
        assert!(house.begin().is_empty() && house.rooms.waiting.is_empty());
    }

    #[test]
    fn who_could_not_begin_comes_back_before_those_who_came_later_even_to_a_room_that_is_gone() {
        let cloud = Room::Cloud("b".into());
        let mut house = House::of(cloud.clone(), RoomSizes::default());
        house.come("a", 1);
        let (reservation, ticket, first) = house.rooms.next(&cloud).expect("a place");
        house.end(reservation, 0);
        house.rooms.tidy(|_| false);
        house.come("a", 1);
        house.rooms.put(&cloud, &"a".into(), ticket, first);
        let next = |house: &mut House| {
            let (reservation, _, waiter) = house.rooms.next(&cloud).expect("a place");
            house.end(reservation, 1);
            waiter.pass()
        };
        assert_eq!(
            [next(&mut house), next(&mut house)],
            [1, 2].map(|pass| Some(PassId(pass)))
        );
    }

    #[test]
    fn it_is_known_where_each_pass_waits_and_no_more_once_it_is_served() {
        let mut house = House::of(Room::Writes, RoomSizes::default());
        house.come("a", 14);
        let known = |house: &House| house.rooms.waiting.keys().map(|pass| pass.0).collect::<Vec<_>>();
        assert_eq!(house.begin().len(), 12);
        assert_eq!(known(&house), [13, 14]);
        let cloud = Room::Cloud("b".into());
        house
            .rooms
            .enqueue(&cloud, &"a".into(), &house.binding, waiter(14));
        assert_eq!(house.rooms.waiting[&PassId(14)].len(), 2);
        house.rooms.forget(PassId(14));
        assert_eq!(known(&house), [13]);
        assert!(house.rooms.next(&cloud).is_none());
        assert!(house.rooms.rooms[&cloud].order.is_empty());
    }

    #[test]
    fn tenant_queues_that_wait_or_hold_a_place_are_remembered_and_idle_ones_are_not() {
        let mut house = House::of(
            Room::Reads,
            RoomSizes {
                reads: 4,
                ..RoomSizes::default()
            },
        );
        house.come("holds a place", 1);
        let held = house.begin();
        let count = REMEMBERED + 9;
        (0..count).for_each(|number| house.come(&format!("queue {number}"), 1));
        let mut served = 0;
        while let Some((reservation, ..)) = house.rooms.next(&house.room) {
            served += 1;
            house.end(reservation, 1);
        }
        assert_eq!((served, held.len()), (count, 1));
        let queues = &house.rooms.rooms[&Room::Reads].queues;
        assert_eq!(queues.len(), REMEMBERED);
        assert!(queues.contains_key("holds a place"));
    }

    /// The writes of a publication of an object with so many bytes in its spec.
    fn draft(bytes: usize) -> crate::worker::Draft {
        let object = serde_json::json!({"spec": "x".repeat(bytes)});
        crate::reconcile::fixture::draft(crate::object::Object::new(object))
    }

    #[test]
    fn a_draft_counts_more_than_text_that_is_read_before_it_is_made_and_after() {
        let draft = draft(100_000);
        let cost = draft.cost();
        assert!(cost >= 10 * 100_000, "{cost}");
        let waiter = event(Call::Draft(Box::new(draft.clone())));
        assert_eq!(super::cost(&waiter), Some(cost));
        assert_eq!(cost_of(&Reply::Drafted(Ok(draft.run()))), Some(cost));
        let room = room_of(&Call::Draft(Box::new(draft)), "machines");
        assert_eq!(room, Some(Room::Threads));
    }

    #[test]
    fn events_that_wait_are_told_from_passes_that_do_and_can_be_dropped() {
        let mut house = House::of(Room::Writes, RoomSizes::default());
        house.come("a", 1);
        assert!(!house.rooms.has_events());
        let event = event(Call::Lease(None));
        house
            .rooms
            .enqueue(&house.room, &"a".into(), &house.binding, event);
        assert!(house.rooms.has_events());
        house.rooms.drop_events();
        assert!(!house.rooms.has_events());
        assert_eq!(house.begin().len(), 1, "the pass still waits");
    }
}
