//! Decides whether everything is settled, from how each object stands and the steps that are left of the
//! scenario.

use polity_clouds::Millis;
use polity_core::controller::WaitsFor;

use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::engine::{Handle, View};
use crate::overview::Overview;
use crate::sim::{self, Running};

/// The interval between checks.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// All that is not settled, denied or gone, with the reasons; empty if everything is.
fn unsettled(overview: &Overview, view: &View) -> Vec<String> {
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
        match overview.is_at_rest(key) {
            Some(Ok(())) if !state.running && !state.queued => {}
            Some(Err(then)) => stuck.push(match &state.waiting {
                WaitsFor::Time(_) | WaitsFor::Change => format!("{key}: {then}"),
                waiting => format!("{key}: {then}; waits for {waiting}"),
            }),
            _ => stuck.push(format!("{key} waits for {}", state.waiting)),
        }
    }
    stuck
}

/// Waits until everything is settled, or until the deadline.
pub struct Settling<'a> {
    /// A handle to the host.
    pub handle: &'a Handle,
    /// How every object stands.
    pub overview: &'a Overview,
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
            let mut stuck = unsettled(self.overview, &view);
            stuck.extend(sim::unfinished(self.running, self.clouds));
            if stuck.is_empty() || clock.now().boot >= end {
                return stuck;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
