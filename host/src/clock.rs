//! The host's clock: real, or running `speed` times as fast in standalone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polity_clouds::BoxFuture;
use polity_core::key::Now;
use tokio::sync::SetOnce;
use tokio::time::Instant;

/// Milliseconds since boot and since the epoch, and sleeps in the same milliseconds.
///
/// With a speed other than 1 both run that many times as fast from the moment the clock was made. What waits on the
/// network waits in real time: only timers, leases and the simulated cloud see this clock.
///
/// A clock may be made to stand still at first, so that nothing happens while the host is getting ready.
pub struct Clock {
    speed: f64,
    boot: u64,
    unix: u64,
    /// Empty while it stands still.
    started: SetOnce<Started>,
}

/// Since when a clock runs, and by what.
enum Started {
    /// The system's boot clock, for which suspends count: a lease goes on ending while the machine sleeps.
    Boot(u64),
    /// The runtime's timer, wherever that is paused too.
    Runtime(Instant),
}

impl Clock {
    /// A clock that starts at the present moment.
    pub fn new(speed: f64) -> Self {
        Self::resume(speed, 0)
    }

    /// A clock that starts at a given moment and follows the runtime's timer, wherever that is paused too.
    pub fn of_runtime(unix: u64) -> Self {
        Clock {
            speed: 1.0,
            boot: 0,
            unix,
            started: SetOnce::new_with(Some(Started::Runtime(Instant::now()))),
        }
    }

    /// A clock that goes on from a moment of virtual time, as standalone data remembers it.
    pub fn resume(speed: f64, unix: u64) -> Self {
        let clock = Self::standing(speed, unix);
        clock.start();
        clock
    }

    /// The same, standing still until it is started.
    pub fn standing(speed: f64, unix: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            speed,
            boot: boot_ms(),
            unix: unix.max(now.unwrap_or_default().as_millis() as u64),
            started: SetOnce::new(),
        }
    }

    /// Lets a clock run that stands still. Whoever sleeps by it begins to sleep now.
    pub fn start(&self) {
        let started = match self.speed == 1.0 {
            true => Started::Boot(boot_ms()),
            false => Started::Runtime(Instant::now()),
        };
        // One that runs goes on running.
        let _ = self.started.set(started);
    }

    /// How many times as fast as real time.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    fn elapsed(&self) -> u64 {
        match self.started.get() {
            None => 0,
            Some(Started::Boot(started)) => boot_ms().saturating_sub(*started),
            Some(Started::Runtime(started)) => {
                (started.elapsed().as_secs_f64() * 1_000.0 * self.speed) as u64
            }
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
        self.started.wait().await;
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
            let far = 9_000_000_000_000;
            let clock = Clock::standing(60.0, far);
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            assert_eq!(clock.now().unix, far);
            let slept = tokio::time::timeout(Duration::from_secs(3_600), clock.sleep(1)).await;
            assert!(slept.is_err(), "its time does not pass");
            clock.start();
            clock.sleep(60_000).await;
            assert_eq!(clock.now().unix, far + 60_000);
        });
    }
}
