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
    ///
    /// What a step of the scenario changes reaches the host some time after the step has ended. So the scenario is looked at
    /// before the host, and its end counts only from the next look on.
    pub async fn wait(&self, clock: &Clock, deadline: Millis) -> Vec<String> {
        let end = clock.now().boot + deadline.into();
        let mut had_ended = sim::unfinished(self.running, self.clouds).is_empty();
        loop {
            let unfinished = sim::unfinished(self.running, self.clouds);
            let has_ended = unfinished.is_empty();
            let Some(view) = self.handle.view().await else {
                return vec!["the host stopped".into()];
            };
            let mut stuck = unsettled(self.overview, &view).chain(unfinished).peekable();
            if (stuck.peek().is_none() && had_ended) || clock.now().boot >= end {
                return stuck.collect();
            }
            drop(stuck);
            had_ended = has_ended;
            tokio::time::sleep(view.pause(LOOK_EVERY, LOOK_EVERY_FOR_EACH)).await;
        }
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use polity_cluster::Cluster;

    use super::*;
    use crate::secrets::ClusterSecrets;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_scenario_counts_only_once_the_host_has_had_time_to_see_its_last_step() {
        let clock = Arc::new(Clock::real());
        let api = crate::standalone::open(&clock, None).expect("the embedded API");
        let cluster = Cluster::new(kube::Client::new(api, "default"), ("polity-system", "polity"));
        let secrets = Arc::new(ClusterSecrets::new(Arc::new(cluster)));
        let clouds = Clouds::new(clock.clone(), secrets, None, 0, None);
        let (handle, mut questions) = Handle::answered_by_hand();
        let (running, left) = Running::with_steps_left(1);
        let overview = Overview::default();
        let settling = Settling {
            handle: &handle,
            overview: &overview,
            clouds: &clouds,
            running: Some(&running),
        };
        let settled = View {
            holder: true,
            ..View::default()
        };
        let mut looks = 0;
        // The last step ends while the host answers the first look.
        let answer = async {
            while let Some(question) = questions.recv().await {
                looks += 1;
                left.store(0, Ordering::SeqCst);
                let _ = question.send(settled.clone());
            }
        };
        let stuck = tokio::select! {
            stuck = settling.wait(&clock, Millis::seconds(3_600)) => stuck,
            () = answer => panic!("there is a handle"),
        };
        assert_eq!((stuck, looks), (Vec::new(), 3));
    }
}
