//! Whether everything is settled: what the last pass of each key came to, and what the scenario still has to do.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use polity_clouds::Millis;
use polity_core::contract::Next;
use polity_core::controller::WaitsFor;
use polity_core::key::Key;
use polity_core::record::{Outcome, PassRecord};

use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::display::then;
use crate::engine::{Handle, View};
use crate::sim::{self, Running};

/// Between looks at whether everything is settled.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// What the last pass of each key came to.
#[derive(Default)]
pub struct LastOutcomes {
    ends: Mutex<BTreeMap<Key, End>>,
}

/// What a pass came to.
#[derive(Clone, Debug)]
struct End {
    settled: bool,
    why: String,
}

impl LastOutcomes {
    /// What is not settled, denied or gone, with the reason; empty if everything is.
    pub fn unsettled(&self, view: &View) -> Vec<String> {
        let ends = self.lock();
        let mut stuck: Vec<String> = view
            .unloaded
            .iter()
            .map(|(name, why)| format!("binding {name} is not loaded: {why}"))
            .collect();
        if view.loading > 0 {
            stuck.push(format!("{} bindings are being loaded", view.loading));
        }
        stuck.extend(
            view.unsynced
                .iter()
                .map(|name| format!("the objects of binding {name} are not known yet")),
        );
        if !view.holder {
            let why = view.lease.as_ref().map(|why| format!(": {why}"));
            let why = why.unwrap_or_default();
            stuck.push(format!("this host does not hold the lease{why}"));
        }
        for (key, state) in &view.keys {
            match ends.get(key) {
                Some(end) if end.settled && !state.running && !state.queued => {}
                Some(end) if !end.settled => stuck.push(match &state.waiting {
                    WaitsFor::Time(_) | WaitsFor::Change => format!("{key}: {}", end.why),
                    waiting => format!("{key}: {}; it waits for {waiting}", end.why),
                }),
                _ => stuck.push(format!("{key} waits for {}", state.waiting)),
            }
        }
        stuck
    }

    /// Takes in a pass that ended.
    pub fn passed(&self, record: &PassRecord) {
        let settled = matches!(
            (&record.outcome, &record.next),
            (Outcome::Denied | Outcome::Released, _) | (Outcome::Published, Some(Next::Settled(_)))
        );
        let end = End {
            settled,
            why: then(record),
        };
        self.lock().insert(record.key.clone(), end);
    }

    /// Its object is gone, or is governed no more.
    pub fn forgotten(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until everything is settled, or the deadline.
pub struct Settling<'a> {
    /// The host.
    pub handle: &'a Handle,
    /// What it does.
    pub ends: &'a LastOutcomes,
    /// Its clouds.
    pub clouds: &'a Clouds,
    /// The scenario that is under way.
    pub running: Option<&'a Running>,
}

impl Settling<'_> {
    /// What is stuck at the deadline; empty if everything settled before.
    pub async fn wait(&self, clock: &Clock, deadline: Millis) -> Vec<String> {
        let end = clock.now().boot.saturating_add(deadline.0);
        loop {
            let Some(view) = self.handle.view().await else {
                return vec!["the host stopped".into()];
            };
            let mut stuck = self.ends.unsettled(&view);
            if let Some(left) = self.running.map(Running::steps_left).filter(|left| *left > 0) {
                stuck.push(format!("the scenario has {left} steps left"));
            }
            for cloud in self.clouds.all() {
                if sim::has_unfinished_faults(&*cloud) {
                    stuck.push("the scenario's faults have not all happened".into());
                }
            }
            if stuck.is_empty() || clock.now().boot >= end {
                return stuck;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
