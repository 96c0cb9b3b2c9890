//! The host's clock: real time, or in standalone a faster one.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polity_clouds::BoxFuture;
use polity_core::time::{Boot, Now, Unix};
use tokio::sync::SetOnce;
use tokio::time::Instant;

/// How fast a clock runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// This many times as fast as real time.
    Times(f64),
    /// The clock jumps: if nothing is left to do before the next timer, it goes to that timer at once. All
    /// that uses the clock must run on one thread, so that the runtime knows when nothing is left to do.
    Max,
}

/// The highest speed. At this speed a call to the embedded API may take 5 ms of real time; ten times as fast, most calls
/// would be cut.
pub const FASTEST: f64 = 1_000.0;

impl Speed {
    /// The speed of real time.
    pub const REAL: Speed = Speed::Times(1.0);

    /// A speed of so many times real time.
    ///
    /// # Errors
    /// If `times` is not above 0 or is more than [`FASTEST`].
    pub fn times(times: f64) -> Result<Self, String> {
        if times > 0.0 && times <= FASTEST {
            Ok(Speed::Times(times))
        } else {
            Err(format!(
                "the speed {times} is out of range: use a number above 0 and up to {FASTEST}, or max"
            ))
        }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("max", _) => Ok(Speed::Max),
            (_, Ok(times)) => Speed::times(times),
            (_, Err(_)) => Err(format!(
                "the speed {text:?} is not a number: use a number above 0 and up to {FASTEST}, or max"
            )),
        }
    }
}

/// The time since boot and since 1970, and sleeps by the same clock.
///
/// Both readings run at the clock's speed from the moment at which it starts. Network calls take real time;
/// only timers, leases and the simulated cloud use this clock.
///
/// A clock can be made to stand still at first, so that no time passes while the host gets ready.
pub struct Clock {
    speed: Speed,
    /// The time at which the clock was made.
    origin: Now,
    /// Empty while the clock stands still.
    started: SetOnce<Started>,
    /// The last reading of a clock that runs at another speed than real time.
    read: Mutex<Option<Reading>>,
}

/// A reading of the runtime's timer, and the time of the clock that had passed by then.
#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    elapsed: Duration,
}

/// How often a sleep reads a clock that runs at another speed than real time.
const READ_EVERY: Duration = Duration::from_millis(50);
/// The most real time that counts between two readings. While the process stands still (Ctrl-Z, a debugger) nobody
/// reads the clock, and hours would pass at once when it goes on.
const COUNTED: Duration = Duration::from_millis(100);

/// The moment at which a clock was started, by the system clock that it follows.
enum Started {
    /// The system's boot clock. It counts suspends: a lease expires while the machine sleeps.
    Boot(Boot),
    /// The runtime's timer, which tests can pause.
    Runtime(Instant),
}

impl Clock {
    /// A real clock.
    pub fn real() -> Self {
        let clock = Self::standing(Speed::REAL, Unix::default());
        clock.start();
        clock
    }

    /// A clock that starts at this time and follows the runtime's timer, which tests can pause.
    #[cfg(feature = "simulation")]
    pub fn of_runtime(unix: Unix) -> Self {
        Clock {
            speed: Speed::REAL,
            origin: Now {
                boot: Boot::default(),
                unix,
            },
            started: SetOnce::new_with(Some(Started::Runtime(Instant::now()))),
            read: Mutex::default(),
        }
    }

    /// A clock that stands still until it is started, and then continues from this virtual time, which the
    /// data folder remembers.
    pub fn standing(speed: Speed, unix: Unix) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::standing_at(speed, unix.max(Unix::default() + now.unwrap_or_default()))
    }

    /// The same from this time, whatever time it is.
    pub fn standing_at(speed: Speed, unix: Unix) -> Self {
        Clock {
            speed,
            origin: Now { boot: boot(), unix },
            started: SetOnce::new(),
            read: Mutex::default(),
        }
    }

    /// Starts a clock that stands still. Sleeps that began before count from now.
    ///
    /// # Panics
    /// If the clock jumps and the runtime has more than one thread.
    pub fn start(&self) {
        // Starting a second time changes nothing.
        if self.started.get().is_some() {
            return;
        }
        let started = match self.speed {
            Speed::REAL => Started::Boot(boot()),
            Speed::Times(_) => Started::Runtime(Instant::now()),
            Speed::Max => {
                // From now on the runtime's timer jumps to the next timeout whenever all tasks wait.
                tokio::time::pause();
                Started::Runtime(Instant::now())
            }
        };
        let _ = self.started.set(started);
    }

    /// The clock's speed.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    fn elapsed(&self) -> Duration {
        match self.started.get() {
            None => Duration::ZERO,
            Some(Started::Boot(started)) => boot() - *started,
            Some(Started::Runtime(started)) => match self.speed {
                Speed::REAL | Speed::Max => started.elapsed(),
                Speed::Times(times) => self.read(*started, times),
            },
        }
    }

    /// Reads a clock that runs at another speed than real time.
    fn read(&self, started: Instant, times: f64) -> Duration {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let before = read.unwrap_or(Reading {
            at: started,
            elapsed: Duration::ZERO,
        });
        let now = Instant::now();
        let counted = now.saturating_duration_since(before.at).min(COUNTED);
        let elapsed = before.elapsed + counted.mul_f64(times);
        *read = Some(Reading { at: now, elapsed });
        elapsed
    }

    /// Both clocks, read together.
    pub fn now(&self) -> Now {
        self.origin + self.elapsed()
    }

    /// Sleeps for this much time of this clock.
    pub async fn sleep(&self, length: Duration) {
        self.started.wait().await;
        let times = match self.speed {
            Speed::REAL | Speed::Max => return tokio::time::sleep(length).await,
            Speed::Times(times) => times,
        };
        let until = self.elapsed().saturating_add(length);
        loop {
            let left = until.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            // At a slow speed a long sleep may be longer than a `Duration` can hold.
            let real = Duration::try_from_secs_f64(left.as_secs_f64() / times);
            tokio::time::sleep(real.unwrap_or(READ_EVERY).min(READ_EVERY)).await;
        }
    }

    /// Sleeps until a time of this clock.
    pub async fn sleep_until(&self, boot: Boot) {
        // A deadline may lie centuries ahead, and the runtime's timer takes some years at most. So it sleeps
        // a day at a time.
        const DAY: Duration = Duration::from_hours(24);
        self.sleep((boot - self.now().boot).min(DAY)).await;
    }
}

impl polity_clouds::Clock for Clock {
    fn now_ms(&self) -> u64 {
        self.now().unix.0
    }

    fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()> {
        Box::pin(self.sleep(Duration::from_millis(millis)))
    }
}

/// The time since boot, suspends included.
fn boot() -> Boot {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Boot(time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_clock_that_stands_still_lets_nobody_sleep_and_goes_on_from_where_it_stood() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(async {
            let far = Unix(9_000_000_000_000);
            let clock = Clock::standing(Speed::Times(60.0), far);
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            assert_eq!(clock.now().unix, far);
            let slept =
                tokio::time::timeout(Duration::from_secs(3_600), clock.sleep(Duration::from_millis(1))).await;
            assert!(slept.is_err(), "its time does not pass");
            clock.start();
            clock.sleep(Duration::from_mins(1)).await;
            assert_eq!(clock.now().unix, far + Duration::from_mins(1));
        });
    }

    #[test]
    fn time_in_which_the_process_stood_still_passes_in_no_leap() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(async {
            let clock = Arc::new(Clock::standing(Speed::Times(40.0), Unix::default()));
            clock.start();
            let before = clock.now();
            let minute = Duration::from_mins(1);
            let sleeper = clock.clone();
            let sleep = tokio::spawn(async move { sleeper.sleep(minute).await });
            tokio::task::yield_now().await;
            // The runtime's timer goes on while the process stands still.
            tokio::time::advance(Duration::from_secs(20)).await;
            let leap = clock.now().boot - before.boot;
            assert_eq!(leap, COUNTED * 40);
            sleep.await.expect("it sleeps");
            assert_eq!(
                clock.now().boot - before.boot,
                minute,
                "its sleep is not over earlier"
            );
        });
    }

    #[test]
    fn a_clock_that_jumps_takes_no_real_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let clock = Clock::standing(Speed::Max, Unix::default());
            let before = clock.now();
            clock.start();
            let week = 7 * Duration::from_hours(24);
            clock.sleep(week).await;
            // The runtime's timer is exact to a millisecond.
            let slept = clock.now().unix - before.unix;
            assert!(
                (week..=week + Duration::from_millis(1)).contains(&slept),
                "{slept:?}"
            );
        });
    }

    #[test]
    fn a_speed_is_a_number_or_max() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("60".parse(), Ok(Speed::Times(60.0)));
        for wrong in ["0", "-1", "NaN", "1001", "inf", "Max", ""] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }
}
