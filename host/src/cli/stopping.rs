//! How a signal stops a host within a bounded time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use polity_clouds::Millis;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::millis;
use crate::display::duration;
use crate::host::{Running, Stage};
use crate::progress::{Format, say};

/// The longest time after the cut: requests that were sent have seven seconds at most to end
/// (`spec.longestOperation` of a CloudConnection), and giving up the lease takes at most two calls of two seconds.
const LAST: Duration = Duration::from_secs(14);

#[derive(Debug, Args)]
pub(super) struct Stopping {
    /// How long a stop waits for passes in flight, in real time. Passes that take longer are cut within
    /// seconds. The next host that runs resolves what they had begun.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = millis)]
    grace: Millis,
}

impl Stopping {
    /// Stops a host: passes in flight have the grace period to end, then they are cut. Each further signal
    /// ends the present stage early.
    pub(super) async fn stop(&self, host: Running, signals: &mut Signals, format: Format) -> Result<()> {
        let ended = host.shutdown(async |stage| match stage {
            Stage::Finishing => tokio::select! {
                () = sleep(Duration::from_millis(self.grace.0)) => {
                    say(format, &format!("cutting the passes that are still in flight after {}", duration(self.grace.into())));
                }
                () = signals.next() => say(format, "cutting the passes that are still in flight"),
            },
            Stage::Cutting => tokio::select! {
                () = sleep(LAST) => {}
                () = signals.next() => {}
            },
        });
        if !ended.await? {
            say(
                format,
                "stopped without giving up the lease: it expires by itself, and until then no other host acts",
            );
        }
        Ok(())
    }
}

/// SIGINT, SIGTERM and SIGHUP. From the moment that this value is made they no longer end the process; they
/// ask it to stop.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the process was started with SIGHUP ignored, as `nohup` does. It stays ignored.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn catch() -> Result<Signals> {
        let catch = |kind| signal(kind).context("cannot install a signal handler");
        Ok(Signals {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: if is_ignored(SignalKind::hangup()) {
                None
            } else {
                Some(catch(SignalKind::hangup())?)
            },
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = async { self.hangup.as_mut()?.recv().await } => {}
        }
    }
}

/// Whether the process was started with this signal ignored; `false` if the system does not tell.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) != 0)
}
