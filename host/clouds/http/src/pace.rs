//! How fast requests are sent to a server: a bucket of requests that fills with time, and more slowly while the server asks
//! for fewer requests. A call that must wait for the bucket waits in its tenant queue, and the tenant queues have their turns by what
//! they took ([`FairQueue`]).
//!
//! A call whose turn would come too late is refused at once. Its tenant queue keeps the place: the turn is kept for the next of its
//! calls, so that tenant queues are compared also while a server takes fewer requests than a call can wait for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polity_core::fair::{FairQueue, Ticket};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

/// The rate of one class of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second.
    pub per_second: f64,
    /// Requests at once, after a pause.
    pub burst: f64,
}

impl Rate {
    /// The part of one host, if so many hosts share the rate: at least an eighth, because whoever may write the status of a
    /// connection can invent hosts.
    #[must_use]
    pub fn shared_by(self, hosts: u32) -> Rate {
        let hosts = f64::from(hosts.clamp(1, MOST_HOSTS));
        Rate {
            per_second: self.per_second / hosts,
            burst: (self.burst / hosts).max(1.0),
        }
    }
}

/// The most hosts among which a rate is divided.
const MOST_HOSTS: u32 = 8;

/// The share of its rate that a bucket keeps when the server asks for fewer requests.
const SLOWER: f64 = 0.5;
/// The least share of its rate that a bucket keeps.
const SLOWEST: f64 = 0.05;
/// The share of the rate that comes back in each second in which the server does not ask for fewer requests.
const RECOVERS: f64 = 0.02;
/// The largest part of a burst that one tenant queue takes. The rest stays for the other tenant queues.
const OF_ONE_QUEUE: f64 = 0.5;
/// A bucket with more tenant queues than this forgets those that are idle.
const REMEMBERED: usize = 1_024;
/// The longest pause that a server can ask for. Without this limit a server, or a proxy before it, could stop the requests of
/// a class for days, those that resolve creates in doubt included. Watches of the API server have the same limit.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long the place of a refused call, and then its turn, is kept for another call of its tenant queue.
const KEPT: Duration = Duration::from_secs(60);
/// A request may be sent if no more than this part of it is missing, because sums of fractions are not exact.
const INEXACT: f64 = 1e-6;

/// The buckets of a process, by server, account, region and class of requests.
#[derive(Default)]
pub struct Pace {
    buckets: Arc<Mutex<BTreeMap<String, Bucket>>>,
}

struct Bucket {
    level: Level,
    /// The share of the rate that is in use now. It is below 1 after the server has asked for fewer requests.
    share: f64,
    /// The requests a second that may be sent now.
    speed: f64,
    /// No request is sent before this moment.
    until: Instant,
    queues: BTreeMap<Arc<str>, TenantQueue>,
    waiting: FairQueue<Waiting>,
    /// Told when the next turn may come at another time than before; `None` while nobody waits for turns.
    turns: Option<Arc<Notify>>,
}

/// What waits for a turn.
enum Waiting {
    /// A call, which is told when it has its turn.
    Call(oneshot::Sender<()>),
    /// The place of a refused call, until this moment.
    Place(Instant),
}

/// How full a bucket is.
#[derive(Clone, Copy)]
struct Level {
    /// Requests that could be sent at that time.
    left: f64,
    at: Instant,
    /// The most requests that it holds.
    most: f64,
}

impl Level {
    fn full(most: f64, now: Instant) -> Self {
        Level {
            left: most,
            at: now,
            most,
        }
    }

    /// The level now, if it has filled with this many requests a second.
    fn now(self, now: Instant, speed: f64) -> Level {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        Level {
            left: (self.left + speed * seconds).min(self.most),
            at: now,
            ..self
        }
    }

    /// How long until this many requests may be sent.
    fn wait(self, requests: f64, speed: f64) -> Duration {
        let missing = requests - self.left;
        if missing <= INEXACT {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(missing / speed).unwrap_or(Duration::MAX)
        }
    }
}

/// A tenant queue at a bucket.
struct TenantQueue {
    /// How much this tenant queue may take of the bucket. It fills as fast as the bucket.
    level: Level,
    /// The place that a refused call has left.
    place: Option<Ticket>,
    /// A turn that came while no call was there is kept until this moment. Its request is counted.
    turn: Option<Instant>,
    pause: Option<Pause>,
}

/// A pause that a server has asked of a tenant queue.
struct Pause {
    until: Instant,
    /// The request that the server refused.
    request: u64,
}

impl TenantQueue {
    fn is_paused(&self, now: Instant) -> bool {
        !self.rest_of_pause(now).is_zero()
    }

    /// How long until it may send a request, as far as it is alone.
    fn wait(&self, now: Instant, speed: f64) -> Duration {
        let own = self.level.now(now, speed).wait(1.0, speed);
        own.max(self.rest_of_pause(now))
    }

    fn rest_of_pause(&self, now: Instant) -> Duration {
        let until = self.pause.as_ref().map(|pause| pause.until);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

/// The answer of a server that takes no more requests for now.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    /// Tells the request from others.
    pub request: u64,
    /// The pause that the server asks for, if it names one. At most [`LONGEST_PAUSE`] counts, first for the tenant queue alone.
    pub pause: Option<Duration>,
    /// Whether the rate is halved: not again for a request that is repeated, and not for what only a proxy says.
    pub halves: bool,
}

/// Whether a call gets a turn.
enum Entry {
    /// At once: its request is counted.
    Now,
    /// Within its time.
    Later,
    /// Too late.
    TooLate,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Bucket {
            level: Level::full(rate.burst, now),
            share: 1.0,
            speed: rate.per_second,
            until: now,
            queues: BTreeMap::new(),
            waiting: FairQueue::default(),
            turns: None,
        }
    }

    /// Fills the bucket for the time since it was filled last, at the present speed.
    fn fill(&mut self, rate: Rate, now: Instant) {
        let seconds = now.saturating_duration_since(self.level.at).as_secs_f64();
        self.share = (self.share + RECOVERS * seconds).min(1.0);
        self.speed = (rate.per_second * self.share).max(f64::MIN_POSITIVE);
        self.level.most = rate.burst;
        self.level = self.level.now(now, self.speed);
    }

    /// How long the bucket is still slower than its rate.
    fn throttled(&self, now: Instant) -> Duration {
        let pause = self.until.saturating_duration_since(now);
        let back = self.level.at + Duration::from_secs_f64((1.0 - self.share) / RECOVERS);
        pause.max(back.saturating_duration_since(now))
    }

    /// A tenant queue, which is made if it is new.
    fn queue(&mut self, rate: Rate, name: &Arc<str>, now: Instant) -> &mut TenantQueue {
        let (part, speed) = ((rate.burst * OF_ONE_QUEUE).max(1.0), self.speed);
        if self.queues.len() > REMEMBERED {
            let waiting = &self.waiting;
            self.queues.retain(|name, queue| {
                let is_idle = queue.level.now(now, speed).left >= queue.level.most;
                !is_idle || waiting.waiting_of(name) > 0 || queue.turn.is_some() || queue.is_paused(now)
            });
        }
        let queue = self.queues.entry(name.clone()).or_insert_with(|| TenantQueue {
            level: Level::full(part, now),
            place: None,
            turn: None,
            pause: None,
        });
        queue.level.most = part;
        queue
    }

    /// Whether a call of this tenant queue would get a turn that comes no later than `longest` from now. If not, its place is kept.
    fn enter(&mut self, rate: Rate, name: &Arc<str>, longest: Duration, now: Instant) -> Entry {
        self.fill(rate, now);
        self.give_turns(now);
        let all_wait = self.until.saturating_duration_since(now);
        let queue = self.queue(rate, name, now);
        let pause = queue.rest_of_pause(now).max(all_wait);
        if queue.turn.is_some() && pause.is_zero() {
            return Entry::Now;
        }
        let (place, level) = (queue.place, queue.level);
        let place = place.filter(|place| self.waiting.remove(name, *place).is_some());
        let own = self.waiting.waiting_of(name);
        let of_own = level.now(now, self.speed).wait(count(own + 1), self.speed);
        let before = self.waiting.before(name, |other| self.is_ready(other, now));
        let of_all = self.level.wait(count(before + 1), self.speed);
        let is_too_late = of_own.max(of_all).max(pause) > longest;
        let kept = Waiting::Place(now + KEPT);
        let place = match place {
            Some(place) => {
                self.waiting.put(name, place, kept);
                Some(place)
            }
            None if is_too_late => Some(self.waiting.push(name, kept)),
            None => None,
        };
        self.queue(rate, name, now).place = place;
        if is_too_late { Entry::TooLate } else { Entry::Later }
    }

    /// Adds a call to its tenant queue, in the place that an earlier call left if there is one.
    fn wait(&mut self, name: &Arc<str>, call: oneshot::Sender<()>) -> Ticket {
        let place = self.queues.get_mut(name).and_then(|queue| queue.place.take());
        let place = place.and_then(|place| self.waiting.remove(name, place).map(|_| place));
        match place {
            Some(place) => {
                self.waiting.put(name, place, Waiting::Call(call));
                place
            }
            None => self.waiting.push(name, Waiting::Call(call)),
        }
    }

    fn is_ready(&self, name: &Arc<str>, now: Instant) -> bool {
        let queue = self.queues.get(name);
        queue.is_some_and(|queue| queue.wait(now, self.speed).is_zero())
    }

    /// When the next turn comes; `None` if nobody waits for one.
    fn next_turn(&self, now: Instant) -> Option<Instant> {
        let shared = self.level.now(now, self.speed).wait(1.0, self.speed);
        let shared = now.checked_add(shared)?.max(self.until);
        let waiting = self
            .queues
            .iter()
            .filter(|(name, _)| self.waiting.waiting_of(name) > 0);
        let ready = waiting.filter_map(|(_, queue)| now.checked_add(queue.wait(now, self.speed)));
        ready.min().map(|ready| ready.max(shared))
    }

    /// Gives the turns that are due. The bucket is filled.
    fn give_turns(&mut self, now: Instant) {
        for queue in self.queues.values_mut() {
            if queue.turn.is_some_and(|until| until <= now) {
                queue.turn = None;
                self.level.left = (self.level.left + 1.0).min(self.level.most);
            }
        }
        while self.until <= now && self.level.wait(1.0, self.speed).is_zero() {
            let (queues, speed) = (&self.queues, self.speed);
            let is_ready = |name: &Arc<str>, _, _: &Waiting| {
                queues
                    .get(name)
                    .is_some_and(|queue| queue.wait(now, speed).is_zero())
            };
            let Some((name, _, waiting)) = self.waiting.next_of(is_ready) else {
                return;
            };
            self.waiting.end(&name, 0);
            let Some(queue) = self.queues.get_mut(&name) else {
                return;
            };
            match waiting {
                Waiting::Place(until) => {
                    queue.place = None;
                    if until <= now {
                        continue;
                    }
                    queue.turn = Some(now + KEPT);
                }
                // Who gave up is not waited for.
                Waiting::Call(call) => {
                    if call.send(()).is_err() {
                        continue;
                    }
                }
            }
            self.take(&name, now);
        }
    }

    /// Counts a request of a tenant queue.
    fn take(&mut self, name: &Arc<str>, now: Instant) {
        self.level.left -= 1.0;
        if let Some(queue) = self.queues.get_mut(name) {
            queue.level = queue.level.now(now, self.speed);
            queue.level.left -= 1.0;
        }
    }

    /// Counts a request no more, because it is not sent.
    fn put_back(&mut self, name: &Arc<str>) {
        self.level.left += 1.0;
        if let Some(queue) = self.queues.get_mut(name) {
            queue.level.left += 1.0;
        }
    }

    /// Notes that the server has asked a tenant queue for a pause. It is the pause of all if the server asks the same of a second
    /// tenant queue meanwhile, or refuses the same request after the pause: one answer may be about one tenant's object alone.
    fn pause(&mut self, rate: Rate, name: &Arc<str>, request: u64, until: Instant, now: Instant) {
        let is_asked_of_two = self
            .queues
            .iter()
            .any(|(other, queue)| other != name && queue.is_paused(now));
        let queue = self.queue(rate, name, now);
        let is_asked_again = |pause: &Pause| pause.until <= now && pause.request == request;
        let is_asked_again = queue.pause.as_ref().is_some_and(is_asked_again);
        let later = queue.pause.as_ref().map_or(until, |pause| pause.until.max(until));
        queue.pause = Some(Pause {
            until: later,
            request,
        });
        if is_asked_of_two || is_asked_again {
            self.until = self.until.max(until);
        }
    }
}

fn count(requests: usize) -> f64 {
    u32::try_from(requests).map_or(f64::MAX, f64::from)
}

/// A waiting call. When it is dropped it leaves its tenant queue, and a turn that it did not use goes to another call.
struct Waiter<'a> {
    pace: &'a Pace,
    class: &'a str,
    queue: &'a Arc<str>,
    ticket: Ticket,
    turn: oneshot::Receiver<()>,
    has_turn: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.has_turn {
            return;
        }
        let mut buckets = self.pace.buckets();
        if let Some(bucket) = buckets.get_mut(self.class) {
            bucket.waiting.remove(self.queue, self.ticket);
            if self.turn.try_recv().is_ok() {
                bucket.put_back(self.queue);
            }
            bucket.turns.iter().for_each(|turns| turns.notify_one());
        }
    }
}

impl Pace {
    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a tenant queue may send a request of a class, and counts that request. The tenant queue that took least comes next,
    /// and none takes more than half of a burst. Returns `false` if the turn does not come within `longest`, as soon as that is known;
    /// then the next turn is kept for another call of the tenant queue.
    pub async fn acquire(&self, class: &str, rate: Rate, queue: &Arc<str>, longest: Duration) -> bool {
        let now = Instant::now();
        let Some(end) = now.checked_add(longest) else {
            return false;
        };
        let mut waiter = {
            let mut buckets = self.buckets();
            let bucket = buckets
                .entry(class.to_owned())
                .or_insert_with(|| Bucket::new(rate, now));
            match bucket.enter(rate, queue, longest, now) {
                Entry::TooLate => return false,
                Entry::Now => {
                    bucket.queue(rate, queue, now).turn = None;
                    return true;
                }
                Entry::Later => {}
            }
            let (call, turn) = oneshot::channel();
            let ticket = bucket.wait(queue, call);
            bucket.give_turns(now);
            self.keep_turns(class, rate, bucket);
            Waiter {
                pace: self,
                class,
                queue,
                ticket,
                turn,
                has_turn: false,
            }
        };
        let in_time = timeout_at(end, &mut waiter.turn)
            .await
            .is_ok_and(|turn| turn.is_ok());
        waiter.has_turn = in_time || {
            // The turn may come just now.
            if let Some(bucket) = self.buckets().get_mut(class) {
                let now = Instant::now();
                bucket.fill(rate, now);
                bucket.give_turns(now);
            }
            waiter.turn.try_recv().is_ok()
        };
        waiter.has_turn
    }

    /// Gives turns when they come, for as long as anybody waits at this bucket.
    fn keep_turns(&self, class: &str, rate: Rate, bucket: &mut Bucket) {
        if let Some(turns) = &bucket.turns {
            turns.notify_one();
            return;
        }
        let turns = Arc::new(Notify::new());
        bucket.turns = Some(turns.clone());
        let (buckets, class) = (self.buckets.clone(), class.to_owned());
        tokio::spawn(async move {
            loop {
                let next = {
                    let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
                    let Some(bucket) = buckets.get_mut(&class) else {
                        return;
                    };
                    let now = Instant::now();
                    bucket.fill(rate, now);
                    bucket.give_turns(now);
                    let next = bucket.next_turn(now);
                    if next.is_none() {
                        bucket.turns = None;
                    }
                    next
                };
                let Some(next) = next else {
                    return;
                };
                tokio::select! {
                    () = sleep_until(next) => {}
                    () = turns.notified() => {}
                }
            }
        });
    }

    /// Whether the turn of a request would come within `longest`. Nothing is counted, and nobody waits. If it comes too late, it is
    /// kept as [`Pace::acquire`] keeps it.
    pub fn would_come(&self, class: &str, rate: Rate, queue: &Arc<str>, longest: Duration) -> bool {
        let now = Instant::now();
        let mut buckets = self.buckets();
        let bucket = buckets
            .entry(class.to_owned())
            .or_insert_with(|| Bucket::new(rate, now));
        !matches!(bucket.enter(rate, queue, longest, now), Entry::TooLate)
    }

    /// The rest of a pause that the server has asked for, of all or of this tenant queue.
    pub fn asked_pause(&self, class: &str, queue: &Arc<str>) -> Option<Duration> {
        let now = Instant::now();
        let rest = |bucket: &Bucket| {
            let own = bucket
                .queues
                .get(queue)
                .map_or(Duration::ZERO, |queue| queue.rest_of_pause(now));
            own.max(bucket.until.saturating_duration_since(now))
        };
        let rest = self.buckets().get(class).map(rest);
        rest.filter(|rest| !rest.is_zero())
    }

    /// How long a class is still slowed down because its server has asked for fewer requests: until a pause of all is over, and the
    /// rate has come back.
    pub fn throttled(&self, class: &str) -> Option<Duration> {
        let rest = self.buckets().get(class)?.throttled(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }

    /// Notes that the server throttles: half of the rate is left, and comes back with time. Returns how long the class is slowed down.
    pub fn slow_down(&self, class: &str, rate: Rate, queue: &Arc<str>, throttle: &Throttle) -> Duration {
        let now = Instant::now();
        let mut buckets = self.buckets();
        let bucket = buckets
            .entry(class.to_owned())
            .or_insert_with(|| Bucket::new(rate, now));
        bucket.fill(rate, now);
        if throttle.halves {
            bucket.share = (bucket.share * SLOWER).max(SLOWEST);
            bucket.level.left = bucket.level.left.min(0.0);
        }
        if let Some(pause) = throttle.pause {
            bucket.pause(rate, queue, throttle.request, now + pause.min(LONGEST_PAUSE), now);
        }
        bucket.turns.iter().for_each(|turns| turns.notify_one());
        bucket.throttled(now)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use futures::stream::FuturesUnordered;

    use super::*;

    const RATE: Rate = Rate {
        per_second: 10.0,
        burst: 4.0,
    };
    const LONG: Duration = Duration::from_secs(3_600);

    fn throttle(request: u64, pause: Option<Duration>) -> Throttle {
        Throttle {
            request,
            pause,
            halves: true,
        }
    }

    fn queue(name: &str) -> Arc<str> {
        name.into()
    }

    /// The requests of these tenant queues in the order in which they are sent, each with the milliseconds until then.
    async fn sent(pace: &Pace, class: &str, names: &[&'static str]) -> Vec<(&'static str, u128)> {
        let began = Instant::now();
        let all = names.iter().map(|name| async move {
            let is_sent = pace.acquire(class, RATE, &queue(name), LONG).await;
            assert!(is_sent, "{name}");
            (*name, began.elapsed().as_millis())
        });
        all.collect::<FuturesUnordered<_>>().collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn after_half_a_burst_the_requests_of_a_queue_go_at_the_rate_of_all() {
        let pace = Pace::default();
        let waits = sent(&pace, "x", &["a"; 5]).await;
        assert_eq!(waits, [("a", 0), ("a", 0), ("a", 100), ("a", 200), ("a", 300)]);
        assert_eq!(
            sent(&pace, "x", &["b", "b"]).await,
            [("b", 0), ("b", 0)],
            "its half"
        );
        assert_eq!(sent(&pace, "y", &["a"]).await, [("a", 0)], "another class");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(sent(&pace, "x", &["a", "a"]).await, [("a", 0), ("a", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_queues_take_turns_however_many_wait_in_one() {
        let pace = Pace::default();
        sent(&pace, "x", &["a", "a", "b", "b"]).await;
        let waits = sent(&pace, "x", &["a", "a", "a", "a", "b", "c"]).await;
        let order: Vec<&str> = waits.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            order,
            ["a", "c", "a", "b", "a", "a"],
            "who came first has taken least of them, and c nothing"
        );
        assert_eq!(waits.last(), Some(&("a", 600)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_comes_too_late_is_known_at_once_and_not_counted() {
        let pace = Pace::default();
        let short = Duration::from_millis(100);
        sent(&pace, "x", &["a", "a"]).await;
        let queue = queue("a");
        let waits = async {
            let first = pace.acquire("x", RATE, &queue, short);
            let second = pace.acquire("x", RATE, &queue, short);
            let began = Instant::now();
            let second = async { (second.await, began.elapsed()) };
            futures::future::join(first, second).await
        };
        assert_eq!(waits.await, (true, (false, Duration::ZERO)));
        assert!(!pace.would_come("x", RATE, &queue, short / 2));
        assert!(pace.would_come("x", RATE, &queue, short) && pace.would_come("x", RATE, &queue, short));
        assert_eq!(sent(&pace, "x", &["a"]).await, [("a", 100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_is_not_waited_for() {
        let pace = Arc::new(Pace::default());
        sent(&pace, "x", &["a", "a", "b", "b"]).await;
        let (given_up, queue_a) = (pace.clone(), queue("a"));
        let given_up = tokio::spawn(async move { given_up.acquire("x", RATE, &queue_a, LONG).await });
        tokio::task::yield_now().await;
        given_up.abort();
        assert_eq!(sent(&pace, "x", &["b", "c"]).await, [("c", 100), ("b", 200)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_throttles_is_asked_less_and_then_more_again() {
        let pace = Pace::default();
        sent(&pace, "x", &["a"]).await;
        pace.slow_down("x", RATE, &queue("a"), &throttle(1, Some(Duration::from_secs(3))));
        assert_eq!(sent(&pace, "x", &["a"]).await, [("a", 3_000)]);
        pace.slow_down("x", RATE, &queue("a"), &throttle(1, None));
        pace.slow_down("x", RATE, &queue("a"), &throttle(1, None));
        let slow = sent(&pace, "x", &["a"; 4]).await;
        assert!(slow.last() > Some(&("a", 400)), "{slow:?}");
        tokio::time::advance(Duration::from_secs(600)).await;
        let fast = sent(&pace, "x", &["a"; 3]).await;
        assert_eq!(fast, [("a", 0), ("a", 0), ("a", 100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_a_pause_of_a_day_gets_five_minutes() {
        let pace = Pace::default();
        sent(&pace, "x", &["a"]).await;
        assert_eq!(pace.throttled("x"), None);
        let day = Some(Duration::from_hours(24));
        pace.slow_down("x", RATE, &queue("a"), &throttle(1, day));
        assert_eq!(pace.asked_pause("x", &queue("a")), Some(LONGEST_PAUSE));
        assert_eq!(sent(&pace, "x", &["a"]).await, [("a", 300_000)]);
        assert_eq!(pace.throttled("x"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_class_has_half_its_rate_and_the_whole_again_when_it_says() {
        let pace = Pace::default();
        let long = pace.slow_down("x", RATE, &queue("a"), &throttle(1, None));
        assert_eq!((long, pace.throttled("y")), (Duration::from_secs(25), None));
        let slow = sent(&pace, "x", &["a", "b"]).await;
        assert!(
            matches!(slow[..], [("a", 190..=200), ("b", 380..=400)]),
            "half of 10 a second: {slow:?}"
        );
        tokio::time::advance(long).await;
        assert_eq!(pace.throttled("x"), None);
        sent(&pace, "x", &["a", "a", "b", "b"]).await;
        assert_eq!(sent(&pace, "x", &["c"]).await, [("c", 100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_begins_while_somebody_waits_holds_for_them() {
        let pace = Pace::default();
        sent(&pace, "x", &["a", "a", "b", "b"]).await;
        let waiting = sent(&pace, "x", &["a", "b"]);
        let throttled = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let pause = Some(Duration::from_secs(2));
            pace.slow_down("x", RATE, &queue("a"), &throttle(1, pause));
            pace.slow_down("x", RATE, &queue("b"), &throttle(2, pause));
        };
        let (waits, ()) = futures::future::join(waiting, throttled).await;
        let begin: Vec<_> = waits.iter().map(|(_, at)| *at >= 2_050).collect();
        assert_eq!(begin, [true, true], "{waits:?}");
    }

    #[test]
    fn each_of_many_hosts_has_its_part_and_at_least_one_request() {
        let rate = |per_second, burst| Rate { per_second, burst };
        assert_eq!(RATE.shared_by(1), RATE);
        assert_eq!(RATE.shared_by(0), RATE);
        assert_eq!(RATE.shared_by(2), rate(5.0, 2.0));
        assert_eq!(RATE.shared_by(8), rate(1.25, 1.0));
        assert_eq!(RATE.shared_by(u32::MAX), RATE.shared_by(8));
    }

    /// How often each of these tenant queues gets a turn in ten minutes at the floor of the rate. Each entry is a tenant queue, with
    /// how many calls of it there are and how long each waits before it tries again. A call waits two seconds for its turn.
    async fn turns_at_the_floor(
        rate: Rate,
        queues: &[(&'static str, usize, u64)],
    ) -> BTreeMap<&'static str, u32> {
        let (pace, turns) = (Pace::default(), Mutex::new(BTreeMap::new()));
        for (name, ..) in queues {
            for request in 0..20 {
                pace.slow_down("x", rate, &queue(name), &throttle(request, None));
            }
        }
        let end = Instant::now() + Duration::from_secs(600);
        let calls = queues.iter().flat_map(|of| (0..of.1).map(move |nth| (of, nth)));
        let (pace, turns_of) = (&pace, &turns);
        let all = calls.map(|((name, _, pause), nth)| async move {
            tokio::time::sleep(Duration::from_millis(37 * nth as u64)).await;
            while Instant::now() < end {
                if pace
                    .acquire("x", rate, &queue(name), Duration::from_secs(2))
                    .await
                {
                    *turns_of.lock().expect("unpoisoned").entry(*name).or_default() += 1;
                    pace.slow_down("x", rate, &queue(name), &throttle(1, None));
                }
                tokio::time::sleep(Duration::from_millis(*pause)).await;
            }
        });
        all.collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;
        turns.into_inner().expect("unpoisoned")
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_floor_of_a_rate_who_asks_most_gets_no_more_than_others() {
        let creates = Rate {
            per_second: 2.0,
            burst: 5.0,
        };
        let turns = turns_at_the_floor(creates, &[("greedy", 42, 1_000), ("modest", 3, 7_000)]).await;
        let (greedy, modest) = (turns["greedy"], turns["modest"]);
        assert!(greedy + modest > 40 && modest * 10 >= greedy * 8, "{turns:?}");
        let turns = turns_at_the_floor(creates, &[("greedy", 44, 1_000), ("rare", 1, 40_000)]).await;
        assert!(turns["rare"] >= 10, "{turns:?}");
        assert!(turns["greedy"] > 40, "what the rare one leaves: {turns:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_nobody_takes_goes_back_after_a_minute() {
        let (pace, short) = (Pace::default(), Duration::from_millis(50));
        sent(&pace, "x", &["a", "a", "b", "b"]).await;
        assert!(!pace.acquire("x", RATE, &queue("c"), short).await, "too late");
        assert!(!pace.would_come("x", RATE, &queue("d"), short), "too late");
        tokio::time::advance(Duration::from_millis(300)).await;
        assert!(
            pace.acquire("x", RATE, &queue("c"), Duration::ZERO).await,
            "its turn was kept"
        );
        assert_eq!(
            sent(&pace, "x", &["b", "b"]).await,
            [("b", 0), ("b", 100)],
            "and the turn of d still is"
        );
        tokio::time::advance(KEPT).await;
        let waits = sent(&pace, "x", &["a", "a", "b", "b", "c"]).await;
        assert_eq!(
            waits.last(),
            Some(&("c", 100)),
            "the bucket is as full as ever: {waits:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_that_of_one_tenant_queue_until_a_second_or_the_same_request_is_answered_so() {
        let (pause, second) = (Some(Duration::from_secs(120)), Duration::from_secs(1));
        let comes = async |pace: &Pace, name| pace.acquire("x", RATE, &queue(name), second).await;
        let pace = Pace::default();
        pace.slow_down("x", RATE, &queue("a"), &throttle(1, pause));
        pace.slow_down("x", RATE, &queue("a"), &throttle(2, pause));
        assert!(
            !comes(&pace, "a").await && comes(&pace, "b").await,
            "it was one tenant's"
        );
        assert_eq!(pace.asked_pause("x", &queue("b")), None);
        pace.slow_down("x", RATE, &queue("b"), &throttle(3, pause));
        assert!(!comes(&pace, "c").await, "it was two tenants'");

        let pace = Pace::default();
        pace.slow_down("x", RATE, &queue("a"), &throttle(1, pause));
        tokio::time::advance(Duration::from_secs(121)).await;
        pace.slow_down("x", RATE, &queue("a"), &throttle(2, pause));
        assert!(comes(&pace, "b").await, "another request of the same tenant");
        tokio::time::advance(Duration::from_secs(121)).await;
        pace.slow_down("x", RATE, &queue("a"), &throttle(2, pause));
        assert!(!comes(&pace, "b").await, "the same request after the pause");
    }
}
