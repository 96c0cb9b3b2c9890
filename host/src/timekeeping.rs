//! Virtual time that outlives the process: a standalone host goes on when it left off.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::data::Data;
use crate::said::Said;

/// Real time between saves of virtual time.
const SAVE_EVERY: Duration = Duration::from_millis(250);
/// The last time that Kubernetes can write, in Unix milliseconds: the end of the year 9999.
const LAST: u64 = 253_402_300_799_999;
/// The file in the data folder that remembers virtual time.
const TIME: &str = "time";

/// The virtual time at which a host goes on: where the last run left it, and never before what a killed run may have seen
/// after it saved its time for the last time, because times in objects must not lie in the future.
pub(crate) fn saved(data: Option<&Data>, speed: f64) -> Result<u64> {
    let text = data.map(|data| data.read(TIME)).transpose();
    let text = text.with_context(|| format!("cannot read {TIME} in the data folder"))?;
    let Some(text) = text.flatten() else {
        return Ok(0);
    };
    let saved: Option<u64> = text.trim().parse().ok().filter(|saved| *saved <= LAST);
    let saved = saved.with_context(|| format!("{TIME} in the data folder holds no time"))?;
    Ok(saved.saturating_add((SAVE_EVERY.as_millis() as f64 * 4.0 * speed) as u64))
}

/// Saves virtual time again and again.
pub(crate) struct Timekeeper {
    data: Arc<Data>,
    clock: Arc<Clock>,
    task: JoinHandle<()>,
}

impl Timekeeper {
    /// Begins to save, and says when that fails.
    pub(crate) fn start(data: Arc<Data>, clock: Arc<Clock>, says: impl Fn(&str) + Send + 'static) -> Self {
        let (of, at) = (data.clone(), clock.clone());
        let task = tokio::spawn(async move {
            let mut said = Said::default();
            let mut tick = tokio::time::interval(SAVE_EVERY);
            loop {
                tick.tick().await;
                let wrong = save(&of, &at).err().map(|e| format!("{e:#}"));
                if let Some(news) = said.news("the virtual time", wrong.as_deref(), at.now().boot) {
                    says(&news);
                }
            }
        });
        Timekeeper { data, clock, task }
    }

    /// Saves the time at the end, when nobody else does any more.
    pub(crate) async fn stop(self) -> Result<()> {
        self.task.abort();
        let _ = self.task.await;
        save(&self.data, &self.clock)
    }
}

fn save(data: &Data, clock: &Clock) -> Result<()> {
    data.replace(TIME, &clock.now().unix.to_string())
        .context("it is not saved")
}
