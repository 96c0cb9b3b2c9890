//! Saves virtual time, so that a standalone host continues at the time at which it stopped.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use polity_core::time::Unix;
use tokio::task::JoinHandle;

use crate::clock::{Clock, Speed};
use crate::data::Data;
use crate::said::Said;

/// How often virtual time is saved, in real time.
const SAVE_EVERY: Duration = Duration::from_millis(250);
/// How often it is saved if the clock jumps, in the time of that clock: an hour of it passes in a moment.
const JUMPING_SAVE_EVERY: Duration = Duration::from_secs(10);
/// The last time that Kubernetes can write: the end of the year 9999.
const LAST: Unix = Unix(253_402_300_799_999);
/// The file in the data folder that holds virtual time.
const TIME: &str = "time";

/// The virtual time at which a host continues: the saved time plus four intervals. A killed run may have
/// written later times than the one it saved last, and times in objects must not lie in the future.
pub(crate) fn saved(data: Option<&Data>, speed: Speed) -> Result<Unix> {
    let text = data.map(|data| data.read(TIME)).transpose();
    let text = text.with_context(|| format!("cannot read {TIME} in the data folder"))?;
    let Some(text) = text.flatten() else {
        return Ok(Unix::default());
    };
    let saved = text.trim().parse().ok().map(Unix);
    let saved = saved.filter(|saved| *saved <= LAST);
    let saved =
        saved.with_context(|| format!("{TIME} in the data folder is not a time in Unix milliseconds"))?;
    Ok(saved + save_every(speed).saturating_mul(4))
}

/// Saves virtual time at regular intervals.
pub(crate) struct Timekeeper {
    data: Arc<Data>,
    clock: Arc<Clock>,
    task: JoinHandle<()>,
}

impl Timekeeper {
    /// Starts to save. `report` is called when saving fails or works again.
    pub(crate) fn start(data: Arc<Data>, clock: Arc<Clock>, report: impl Fn(&str) + Send + 'static) -> Self {
        let (of, at) = (data.clone(), clock.clone());
        let task = tokio::spawn(async move {
            let mut said = Said::default();
            loop {
                let wrong = save(&of, &at).err().map(|e| format!("{e:#}"));
                if let Some(news) = said.news("the virtual time", wrong.as_deref(), at.now().boot) {
                    report(&news);
                }
                at.sleep(save_every(at.speed())).await;
            }
        });
        Timekeeper { data, clock, task }
    }

    /// Stops the task and saves the time at the end.
    pub(crate) async fn stop(self) -> Result<()> {
        self.task.abort();
        let _ = self.task.await;
        save(&self.data, &self.clock)
    }
}

/// The time of the clock between two saves.
fn save_every(speed: Speed) -> Duration {
    match speed {
        Speed::Times(times) => SAVE_EVERY.mul_f64(times).max(Duration::from_millis(1)),
        Speed::Max => JUMPING_SAVE_EVERY,
    }
}

fn save(data: &Data, clock: &Clock) -> Result<()> {
    data.replace(TIME, &clock.now().unix.0.to_string())
        .context("it cannot be saved")
}
