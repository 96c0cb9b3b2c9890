//! Virtual time that outlives the process: a standalone host goes on when it left off.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;

use crate::clock::{Clock, Speed};
use crate::data::Data;
use crate::said::Said;

/// Milliseconds of real time between saves of virtual time.
const SAVE_EVERY: u64 = 250;
/// Milliseconds of a clock that jumps, of which an hour is over in a moment.
const JUMPING_SAVE_EVERY: u64 = 10_000;
/// The last time that Kubernetes can write, in Unix milliseconds: the end of the year 9999.
const LAST: u64 = 253_402_300_799_999;
/// The file in the data folder that remembers virtual time.
const TIME: &str = "time";

/// The virtual time at which a host goes on: where the last run left it, and never before what a killed run may have seen
/// after it saved its time for the last time, because times in objects must not lie in the future.
pub(crate) fn saved(data: Option<&Data>, speed: Speed) -> Result<u64> {
    let text = data.map(|data| data.read(TIME)).transpose();
    let text = text.with_context(|| format!("cannot read {TIME} in the data folder"))?;
    let Some(text) = text.flatten() else {
        return Ok(0);
    };
    let saved: Option<u64> = text.trim().parse().ok().filter(|saved| *saved <= LAST);
    let saved = saved.with_context(|| format!("{TIME} in the data folder holds no time"))?;
    Ok(saved.saturating_add(save_every(speed).saturating_mul(4)))
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
            loop {
                let wrong = save(&of, &at).err().map(|e| format!("{e:#}"));
                if let Some(news) = said.news("the virtual time", wrong.as_deref(), at.now().boot) {
                    says(&news);
                }
                at.sleep(save_every(at.speed())).await;
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

/// Milliseconds of a clock between two saves of its time.
fn save_every(speed: Speed) -> u64 {
    match speed {
        Speed::Times(times) => ((SAVE_EVERY as f64 * times) as u64).max(1),
        Speed::Max => JUMPING_SAVE_EVERY,
    }
}

fn save(data: &Data, clock: &Clock) -> Result<()> {
    data.replace(TIME, &clock.now().unix.to_string())
        .context("it is not saved")
}
