//! How a host ends: by a signal, in a bounded time.

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

/// How long what was sent before the cut may still take, and then the lease to be given up: five seconds each.
const LAST: Duration = Duration::from_secs(12);

#[derive(Debug, Args)]
pub(super) struct Stopping {
    /// How long a stop waits for passes in flight, in real time. Then nothing more is begun, and within seconds they end in
    /// the middle: what they had begun is settled when a host runs again.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = millis)]
    grace: Millis,
}

impl Stopping {
    /// Stops a host: what is in flight has its time, the rest is cut. Another signal shortens either.
    pub(super) async fn stop(&self, host: Running, signals: &mut Signals, format: Format) -> Result<()> {
        let ended = host.shutdown(async |stage| match stage {
            Stage::Finishing => tokio::select! {
                () = sleep(Duration::from_millis(self.grace.0)) => {
                    say(format, &format!("what is still in flight after {} is cut", duration(self.grace.0)));
                }
                () = signals.next() => say(format, "what is still in flight is cut"),
            },
            Stage::Cutting => tokio::select! {
                () = sleep(LAST) => {}
                () = signals.next() => {}
            },
        });
        if !ended.await? {
            say(
                format,
                "stopped in the middle: the lease was not given up, and ends by itself",
            );
        }
        Ok(())
    }
}

/// SIGINT, SIGTERM and SIGHUP: they ask the process to stop from when this is made, and end it no more by themselves.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started the process has it ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn catch() -> Result<Signals> {
        let catch = |kind| signal(kind).context("the system lets no signal be caught");
        Ok(Signals {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: match is_ignored(SignalKind::hangup()) {
                true => None,
                false => Some(catch(SignalKind::hangup())?),
            },
        })
    }

    /// Waits for the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = async { self.hangup.as_mut()?.recv().await } => {}
        }
    }
}

/// Whether the process began with this signal ignored. Where the system does not say so, it did not.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) != 0)
}
