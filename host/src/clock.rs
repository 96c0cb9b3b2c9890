//! The driver's clock: real, or running `speed` times as fast in standalone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polity_clouds::BoxFuture;
use polity_core::key::Now;
use tokio::time::Instant;

/// Milliseconds since boot and since the epoch, and sleeps in the same milliseconds.
///
/// With a speed other than 1 both run that many times as fast from the moment the clock was made. What waits on the
/// network waits in real time: only timers, leases and the simulated cloud see this clock.
pub struct Clock {
    speed: f64,
    /// None: it follows the system's boot clock, for which suspends count: a lease goes on ending while the machine
    /// sleeps.
    started: Option<Instant>,
    boot: u64,
    unix: u64,
}

impl Clock {
    /// A clock that starts at the present moment.
    pub fn new(speed: f64) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis() as u64;
        Clock {
            speed,
            started: (speed != 1.0).then(Instant::now),
            boot: boot_ms(),
            unix,
        }
    }

    /// A clock that starts at a given moment and follows the runtime's timer, wherever that is paused too.
    pub fn of_runtime(unix: u64) -> Self {
        Clock {
            speed: 1.0,
            started: Some(Instant::now()),
            boot: 0,
            unix,
        }
    }

    /// A clock that goes on from a moment of virtual time, as standalone data remembers it.
    pub fn resume(speed: f64, unix: u64) -> Self {
        let clock = Clock::new(speed);
        Clock {
            unix: clock.unix.max(unix),
            ..clock
        }
    }

    /// How many times as fast as real time.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    fn elapsed(&self) -> u64 {
        match self.started {
            None => boot_ms().saturating_sub(self.boot),
            Some(started) => (started.elapsed().as_secs_f64() * 1_000.0 * self.speed) as u64,
        }
    }

    /// Both clocks, read together.
    pub fn now(&self) -> Now {
        let elapsed = self.elapsed();
        Now {
            boot: self.boot.saturating_add(elapsed),
            unix: self.unix.saturating_add(elapsed),
        }
    }

    /// Passes so many milliseconds of this clock.
    pub async fn sleep(&self, millis: u64) {
        // A slow clock makes more of a long time than fits.
        let real = Duration::try_from_secs_f64(millis as f64 / 1_000.0 / self.speed);
        tokio::time::sleep(real.unwrap_or(Duration::MAX)).await;
    }

    /// Waits until a time of this clock, in boot milliseconds.
    pub async fn sleep_until(&self, boot: u64) {
        // A deadline may lie centuries ahead; the timer takes no more than some years.
        const DAY: u64 = 86_400_000;
        self.sleep(boot.saturating_sub(self.now().boot).min(DAY)).await;
    }
}

impl polity_clouds::Clock for Clock {
    fn now_ms(&self) -> u64 {
        self.now().unix
    }

    fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()> {
        Box::pin(self.sleep(millis))
    }
}

/// Milliseconds since boot, suspends included.
fn boot_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
}
