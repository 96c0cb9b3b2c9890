//! Decides whether everything is settled, from how each object stands and the steps that are left of the
//! scenario.

use std::time::Duration;

use polity_clouds::Millis;
use polity_core::controller::WaitsFor;

use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::engine::{Handle, View};
use crate::overview::Overview;
use crate::sim::{self, Running};

/// The interval between checks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longer interval of a large host, for each object: a view of all objects takes time on the event loop.
const LOOK_EVERY_FOR_EACH: Duration = Duration::from_micros(200);

/// All that is not settled, denied or gone, each with its reason; nothing if everything is. The reasons are put into words
/// one by one, because most checks only ask whether there is one.
fn unsettled<'a>(overview: &'a Overview, view: &'a View) -> impl Iterator<Item = String> + 'a {
    let unloaded = view.unloaded.iter();
    let unloaded = unloaded.map(|(name, why)| format!("binding {name} is not loaded: {why}"));
    let loading = (view.loading > 0).then(|| format!("{} bindings are being loaded", view.loading));
    let unsynced = view.unsynced.iter();
    let unsynced = unsynced.map(|name| format!("the objects of binding {name} are not known yet"));
    let lease = (!view.holder).then(|| {
        let why = view.lease.as_ref().map(|why| format!(": {why}"));
        format!("this host does not hold the lease{}", why.unwrap_or_default())
    });
    let objects = view.keys.iter().filter_map(|(key, state)| {
        let then = match overview.is_at_rest(key) {
            Some(Ok(())) if !state.running && !state.queued => return None,
            Some(Err(then)) => then,
            _ => return Some(format!("{key} waits for {}", state.waiting)),
        };
        Some(match &state.waiting {
            WaitsFor::Time(_) | WaitsFor::Change => format!("{key}: {then}"),
            waiting => format!("{key}: {then}; waits for {waiting}"),
        })
    });
    unloaded
        .chain(loading)
        .chain(unsynced)
        .chain(lease)
        .chain(objects)
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
            let stuck = unsettled(self.overview, &view);
            let mut stuck = stuck.chain(sim::unfinished(self.running, self.clouds)).peekable();
            if stuck.peek().is_none() || clock.now().boot >= end {
                return stuck.collect();
            }
            drop(stuck);
            tokio::time::sleep(view.pause(LOOK_EVERY, LOOK_EVERY_FOR_EACH)).await;
        }
    }
}
