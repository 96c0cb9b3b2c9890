//! How fast requests are sent to a server: a bucket of requests that fills with time, and more slowly while the server asks
//! for fewer requests. A call that must wait for the bucket waits in its tenant queue, and the tenant queues take turns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

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
/// A request may be sent if no more than this part of it is missing, because sums of fractions are not exact.
const INEXACT: f64 = 1e-6;

/// The buckets of a process, by server, account, region and class of requests.
#[derive(Default)]
pub struct Pace {
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

struct Bucket {
    level: Level,
    /// The share of the rate that is in use now. It is below 1 after the server has asked for fewer requests.
    share: f64,
    /// The requests a second that may be sent now.
    speed: f64,
    /// No request is sent before this moment.
    until: Instant,
    queues: BTreeMap<Arc<str>, Queue>,
    /// The tenant queues in which a call waits, the next tenant queue first.
    turns: VecDeque<Arc<str>>,
    /// The number of the last call that entered a tenant queue.
    last: u64,
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
struct Queue {
    /// How much this tenant queue may take of the bucket. It fills as fast as the bucket.
    level: Level,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

/// What a waiting call does next.
enum Next {
    /// Sends the request: it is counted.
    Send,
    /// Asks again at this moment.
    At(Instant),
    /// Waits until another call wakes it.
    Told,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Bucket {
            level: Level::full(rate.burst, now),
            share: 1.0,
            speed: rate.per_second,
            until: now,
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
            last: 0,
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

    /// Adds a call to a tenant queue and returns the number of the call. Returns `None`, and adds nothing, if its turn would come
    /// later than `longest` from now.
    fn enter(&mut self, rate: Rate, name: &Arc<str>, wake: &Arc<Notify>, longest: Duration) -> Option<u64> {
        let now = Instant::now();
        self.fill(rate, now);
        let part = (rate.burst * OF_ONE_QUEUE).max(1.0);
        if self.queues.len() > REMEMBERED {
            let speed = self.speed;
            let is_idle = |queue: &Queue| queue.level.now(now, speed).left >= queue.level.most;
            self.queues
                .retain(|_, queue| !queue.waiting.is_empty() || !is_idle(queue));
        }
        let queue = self.queues.entry(name.clone()).or_insert_with(|| Queue {
            level: Level::full(part, now),
            waiting: VecDeque::new(),
        });
        queue.level.most = part;
        let own = queue.waiting.len();
        let of_own = queue.level.now(now, self.speed).wait(count(own + 1), self.speed);
        // Each other tenant queue has at most as many turns before this call as the call's own tenant queue has up to it.
        let others = self.queues.iter().filter(|(other, _)| *other != name);
        let before: usize = others.map(|(_, other)| other.waiting.len().min(own + 1)).sum();
        let of_all = self.level.wait(count(before + own + 1), self.speed);
        let pause = self.until.saturating_duration_since(now);
        if of_own.max(of_all).max(pause) > longest {
            return None;
        }
        self.last += 1;
        let waiting = &mut self.queues.get_mut(name)?.waiting;
        waiting.push_back((self.last, wake.clone()));
        if own == 0 {
            self.turns.push_back(name.clone());
        }
        Some(self.last)
    }

    /// The call that is next, and when: the first call of the tenant queue whose part is filled first.
    fn next(&self, now: Instant) -> Option<(Instant, &(u64, Arc<Notify>))> {
        let pause = self.until.saturating_duration_since(now);
        let shared = self.level.now(now, self.speed).wait(1.0, self.speed).max(pause);
        let turns = self.turns.iter().filter_map(|name| self.queues.get(name));
        let ready = turns.filter_map(|queue| {
            let own = queue.level.now(now, self.speed).wait(1.0, self.speed);
            Some((now.checked_add(shared.max(own))?, queue.waiting.front()?))
        });
        ready.min_by_key(|(at, _)| *at)
    }

    fn ask(&mut self, rate: Rate, name: &Arc<str>, number: u64) -> Next {
        let now = Instant::now();
        self.fill(rate, now);
        match self.next(now) {
            Some((at, (first, _))) if *first == number && at > now => Next::At(at),
            Some((_, (first, _))) if *first == number => {
                self.level.left -= 1.0;
                if let Some(queue) = self.queues.get_mut(name) {
                    queue.level = queue.level.now(now, self.speed);
                    queue.level.left -= 1.0;
                }
                Next::Send
            }
            // Another call may have become the first, and does not know it yet.
            Some((_, (_, wake))) => {
                wake.notify_one();
                Next::Told
            }
            None => Next::Told,
        }
    }

    /// Removes a call from its tenant queue, and wakes the call that is next. A tenant queue that had its turn becomes the last.
    fn leave(&mut self, name: &Arc<str>, number: u64, had_turn: bool) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.waiting.retain(|(waiting, _)| *waiting != number);
            let is_empty = queue.waiting.is_empty();
            if is_empty || had_turn {
                self.turns.retain(|turn| turn != name);
            }
            if had_turn && !is_empty {
                self.turns.push_back(name.clone());
            }
        }
        if let Some((_, (_, wake))) = self.next(Instant::now()) {
            wake.notify_one();
        }
    }
}

fn count(requests: usize) -> f64 {
    u32::try_from(requests).map_or(f64::MAX, f64::from)
}

/// A waiting call. It leaves its tenant queue when it is dropped.
struct Waiter<'a> {
    pace: &'a Pace,
    class: &'a str,
    queue: &'a Arc<str>,
    number: u64,
    had_turn: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(bucket) = self.pace.buckets().get_mut(self.class) {
            bucket.leave(self.queue, self.number, self.had_turn);
        }
    }
}

impl Pace {
    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a tenant queue may send a request of a class, and counts that request. The tenant queues take turns, and none
    /// takes more than half of a burst. Returns `false` if the turn does not come within `longest`, as soon as that is known.
    pub async fn acquire(&self, class: &str, rate: Rate, queue: &Arc<str>, longest: Duration) -> bool {
        let now = Instant::now();
        let wake = Arc::new(Notify::new());
        let entered = {
            let mut buckets = self.buckets();
            let bucket = buckets
                .entry(class.to_owned())
                .or_insert_with(|| Bucket::new(rate, now));
            bucket.enter(rate, queue, &wake, longest)
        };
        let Some(number) = entered else {
            return false;
        };
        let mut waiter = Waiter {
            pace: self,
            class,
            queue,
            number,
            had_turn: false,
        };
        let Some(end) = now.checked_add(longest) else {
            return false;
        };
        loop {
            let next = self
                .buckets()
                .get_mut(class)
                .map_or(Next::Told, |bucket| bucket.ask(rate, queue, number));
            let until = match next {
                Next::Send => {
                    waiter.had_turn = true;
                    return true;
                }
                _ if Instant::now() >= end => return false,
                Next::At(at) => at.min(end),
                Next::Told => end,
            };
            tokio::select! {
                () = sleep_until(until) => {}
                () = wake.notified() => {}
            }
        }
    }

    /// Whether the turn of a request would come within `longest`. Nothing is counted, and nobody waits.
    pub fn would_come(&self, class: &str, rate: Rate, queue: &Arc<str>, longest: Duration) -> bool {
        let mut buckets = self.buckets();
        let bucket = buckets
            .entry(class.to_owned())
            .or_insert_with(|| Bucket::new(rate, Instant::now()));
        let entered = bucket.enter(rate, queue, &Arc::default(), longest);
        if let Some(number) = entered {
            bucket.leave(queue, number, false);
        }
        entered.is_some()
    }

    /// The rest of a pause that the server has asked for.
    pub fn asked_pause(&self, class: &str) -> Option<Duration> {
        let pause = |bucket: &Bucket| bucket.until.saturating_duration_since(Instant::now());
        let rest = self.buckets().get(class).map(pause);
        rest.filter(|rest| !rest.is_zero())
    }

    /// How long a class is still slowed down because its server has asked for fewer requests: until a pause is over, and the rate
    /// has come back.
    pub fn throttled(&self, class: &str) -> Option<Duration> {
        let rest = self.buckets().get(class)?.throttled(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }

    /// Notes that the server throttles: half of the rate is left, and comes back with time. `for_` is the pause that the server
    /// asks for, if it names one; at most [`LONGEST_PAUSE`] counts. Returns how long the class is slowed down.
    pub fn slow_down(&self, class: &str, rate: Rate, for_: Option<Duration>) -> Duration {
        let now = Instant::now();
        let mut buckets = self.buckets();
        let bucket = buckets
            .entry(class.to_owned())
            .or_insert_with(|| Bucket::new(rate, now));
        bucket.fill(rate, now);
        bucket.share = (bucket.share * SLOWER).max(SLOWEST);
        bucket.level.left = bucket.level.left.min(0.0);
        if let Some(pause) = for_ {
            bucket.until = bucket.until.max(now + pause.min(LONGEST_PAUSE));
        }
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
        assert_eq!(order, ["a", "b", "c", "a", "a", "a"]);
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
        assert_eq!(sent(&pace, "x", &["b", "c"]).await, [("b", 100), ("c", 200)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_throttles_is_asked_less_and_then_more_again() {
        let pace = Pace::default();
        sent(&pace, "x", &["a"]).await;
        pace.slow_down("x", RATE, Some(Duration::from_secs(3)));
        assert_eq!(sent(&pace, "x", &["a"]).await, [("a", 3_000)]);
        pace.slow_down("x", RATE, None);
        pace.slow_down("x", RATE, None);
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
        pace.slow_down("x", RATE, Some(Duration::from_hours(24)));
        assert_eq!(pace.throttled("x"), Some(LONGEST_PAUSE));
        assert_eq!(sent(&pace, "x", &["a"]).await, [("a", 300_000)]);
        assert_eq!(pace.throttled("x"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_class_has_half_its_rate_and_the_whole_again_when_it_says() {
        let pace = Pace::default();
        let long = pace.slow_down("x", RATE, None);
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
            pace.slow_down("x", RATE, Some(Duration::from_secs(2)));
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
}
