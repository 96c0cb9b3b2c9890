//! Decides whether everything is settled, from the last pass of each key and the steps that are left of the
//! scenario.

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

/// The interval between checks.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// The result of each key's last pass.
#[derive(Default)]
pub struct LastOutcomes {
    ends: Mutex<BTreeMap<Key, End>>,
}

/// The result of a pass.
#[derive(Clone, Debug)]
struct End {
    settled: bool,
    why: String,
}

impl LastOutcomes {
    /// All that is not settled, denied or gone, with the reasons; empty if everything is.
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
                    waiting => format!("{key}: {}; waits for {waiting}", end.why),
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

    /// Forgets an object that is gone or no longer governed.
    pub fn forgotten(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until everything is settled, or until the deadline.
pub struct Settling<'a> {
    /// A handle to the host.
    pub handle: &'a Handle,
    /// The result of each key's last pass.
    pub ends: &'a LastOutcomes,
    /// The open clouds.
    pub clouds: &'a Clouds,
    /// The scenario that is under way.
    pub running: Option<&'a Running>,
}

impl Settling<'_> {
    /// Waits. Returns what is stuck at the deadline, or an empty list if everything settled before.
    pub async fn wait(&self, clock: &Clock, deadline: Millis) -> Vec<String> {
        let end = clock.now().boot + deadline.into();
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
