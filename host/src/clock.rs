//! The host's clock: real time, or in standalone a faster one.

use std::str::FromStr;
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

impl Speed {
    /// The speed of real time.
    pub const REAL: Speed = Speed::Times(1.0);

    /// A speed of so many times real time.
    ///
    /// # Errors
    /// If `times` is not above 0 or is more than 10,000.
    pub fn times(times: f64) -> Result<Self, String> {
        match times > 0.0 && times <= 10_000.0 {
            true => Ok(Speed::Times(times)),
            false => Err(format!(
                "the speed {times} is out of range: use a number above 0 and up to 10000, or max"
            )),
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
                "the speed {text:?} is not a number: use a number above 0 and up to 10000, or max"
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
}

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
        }
    }

    /// A clock that stands still until it is started, and then continues from this virtual time, which the
    /// data folder remembers.
    pub fn standing(speed: Speed, unix: Unix) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            speed,
            origin: Now {
                boot: boot(),
                unix: unix.max(Unix::default() + now.unwrap_or_default()),
            },
            started: SetOnce::new(),
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
                Speed::Times(times) => {
                    Duration::from_millis((started.elapsed().as_secs_f64() * 1_000.0 * times) as u64)
                }
                Speed::Max => started.elapsed(),
            },
        }
    }

    /// Both clocks, read together.
    pub fn now(&self) -> Now {
        self.origin + self.elapsed()
    }

    /// Sleeps for this much time of this clock.
    pub async fn sleep(&self, length: Duration) {
        self.started.wait().await;
        let time = match self.speed {
            // At a slow speed a long sleep may be longer than a `Duration` can hold.
            Speed::Times(times) => Duration::try_from_secs_f64(length.as_secs_f64() / times),
            Speed::Max => Ok(length),
        };
        tokio::time::sleep(time.unwrap_or(Duration::MAX)).await;
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
        for wrong in ["0", "-1", "NaN", "10001", "inf", "Max", ""] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }
}
