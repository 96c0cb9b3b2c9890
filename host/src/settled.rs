//! Decides whether everything is settled, from how each object stands and the steps that are left of the
//! scenario.

use std::time::Duration;

use polity_clouds::Millis;
use polity_core::controller::WaitReason;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::engine::{Handle, View};
use crate::overview::Overview;
use crate::sim::{self, Running};

/// The interval between checks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longer interval of a large host, for each object: a view of all objects takes time on the event loop.
const LOOK_EVERY_FOR_EACH: Duration = Duration::from_micros(200);

/// How long a binding must have been refused before the wait ends, in real time. A change that mends it reaches the host within
/// this time: it looks for changed connections once a second.
const REFUSED: Duration = Duration::from_secs(3);

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
            WaitReason::Time(_) | WaitReason::Change => format!("{key}: {then}"),
            waiting => format!("{key}: {then}; waits for {waiting}"),
        })
    });
    unloaded
        .chain(loading)
        .chain(unsynced)
        .chain(lease)
        .chain(objects)
}

/// Waits until everything is settled, until nothing can change that any more, or until the deadline.
pub struct Settling<'a> {
    /// A handle to the host.
    pub handle: &'a Handle,
    /// How every object stands.
    pub overview: &'a Overview,
    /// The open clouds.
    pub clouds: &'a Clouds,
    /// The scenario that is under way.
    pub running: Option<&'a Running>,
    /// Whether somebody else can change objects: on a cluster, or by the port of the embedded API.
    pub is_open: bool,
}

/// Why the wait ended although not everything is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSettled {
    /// Whether the deadline came. Otherwise nothing could change any more.
    pub is_late: bool,
    /// All that is stuck, each with its reason.
    pub stuck: Vec<String>,
}

impl Settling<'_> {
    /// Waits.
    ///
    /// # Errors
    /// Not everything settled.
    ///
    /// What a step of the scenario changes reaches the host some time after the step has ended. So the scenario is looked at
    /// before the host, and its end counts only from the next look on.
    pub async fn wait(&self, clock: &Clock, deadline: Millis) -> Result<(), NotSettled> {
        let end = clock.now().boot + deadline.into();
        let mut had_ended = sim::unfinished(self.running, self.clouds).is_empty();
        let mut refused_since = None;
        loop {
            let unfinished = sim::unfinished(self.running, self.clouds);
            let has_ended = unfinished.is_empty();
            let Some(view) = self.handle.view().await else {
                return Err(NotSettled {
                    is_late: false,
                    stuck: vec!["the host stopped".into()],
                });
            };
            let failed = self.running.map_or(0, Running::steps_failed);
            let failed = (failed > 0).then(|| format!("steps of the scenario that failed: {failed}"));
            let now = Instant::now();
            refused_since = self.cannot_load(&view).then(|| refused_since.unwrap_or(now));
            let is_refused = refused_since.is_some_and(|since| now - since >= REFUSED);
            let is_lost = failed.is_some() || refused_since.is_some();
            let must_end = failed.is_some() || is_refused || clock.now().boot >= end;
            let stuck = failed.into_iter().chain(unsettled(self.overview, &view));
            let mut stuck = stuck.chain(unfinished).peekable();
            if stuck.peek().is_none() && had_ended {
                return Ok(());
            }
            if must_end {
                return Err(NotSettled {
                    is_late: !is_lost,
                    stuck: stuck.collect(),
                });
            }
            drop(stuck);
            had_ended = has_ended;
            tokio::time::sleep(view.pause(LOOK_EVERY, LOOK_EVERY_FOR_EACH)).await;
        }
    }

    /// Whether a binding was refused and nothing that is still to come can change that. Bindings that are being loaded are
    /// waited for, so that all problems are told.
    fn cannot_load(&self, view: &View) -> bool {
        let may_change = self.is_open || self.running.is_some_and(Running::may_mend_bindings);
        view.refused > 0 && view.loading == 0 && !may_change
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::sync::Arc;

    use polity_cluster::Cluster;

    use super::*;
    use crate::secrets::ClusterSecrets;

    fn clock_and_clouds() -> (Arc<Clock>, Clouds) {
        let clock = Arc::new(Clock::real());
        let api = crate::standalone::open(&clock, None, None).expect("the embedded API");
        let cluster = Cluster::new(kube::Client::new(api, "default"), ("polity-system", "polity"));
        let secrets = Arc::new(ClusterSecrets::new(Arc::new(cluster)));
        (clock.clone(), Clouds::new(clock, secrets, None, 0, None))
    }

    /// How the wait of an hour ends, and of no time, while the host stands like this.
    async fn ends(view: &View, running: Option<&Running>, is_open: bool, deadline: u64) -> NotSettled {
        let (clock, clouds) = clock_and_clouds();
        let (handle, mut questions) = Handle::answered_by_hand();
        let settling = Settling {
            handle: &handle,
            overview: &Overview::default(),
            clouds: &clouds,
            running,
            is_open,
        };
        let answer = async {
            while let Some(question) = questions.recv().await {
                let _ = question.send(view.clone());
            }
        };
        tokio::select! {
            ended = settling.wait(&clock, Millis::seconds(deadline)) => ended.expect_err("it is not settled"),
            () = answer => panic!("there is a handle"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_binding_ends_the_wait_at_once_unless_something_can_still_mend_it() {
        let refused = View {
            holder: true,
            unloaded: [("b".to_owned(), "no file".to_owned())].into(),
            refused: 1,
            ..View::default()
        };
        let stuck = "binding b is not loaded: no file";
        let idle = Running::standing(1, 0, 0);
        for running in [None, Some(&idle)] {
            let ended = ends(&refused, running, false, 3_600).await;
            assert!(!ended.is_late && ended.stuck[0] == stuck, "{ended:?}");
        }
        let mends = Running::standing(1, 1, 0);
        for (running, is_open) in [(None, true), (Some(&mends), false)] {
            assert!(ends(&refused, running, is_open, 0).await.is_late);
        }
        for waits in [
            View {
                refused: 0,
                ..refused.clone()
            },
            View {
                loading: 1,
                ..refused.clone()
            },
        ] {
            assert!(ends(&waits, None, false, 0).await.is_late, "{waits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_step_ends_the_wait_at_once() {
        let view = View {
            holder: true,
            ..View::default()
        };
        let ended = ends(&view, Some(&Running::standing(3, 0, 1)), true, 3_600).await;
        assert!(!ended.is_late, "{ended:?}");
        assert_eq!(ended.stuck[0], "steps of the scenario that failed: 1");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_scenario_counts_only_once_the_host_has_had_time_to_see_its_last_step() {
        let (clock, clouds) = clock_and_clouds();
        let (handle, mut questions) = Handle::answered_by_hand();
        let (running, left) = Running::with_steps_left(1);
        let overview = Overview::default();
        let settling = Settling {
            handle: &handle,
            overview: &overview,
            clouds: &clouds,
            running: Some(&running),
            is_open: false,
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
                left.lock().expect("nobody panicked").clear();
                let _ = question.send(settled.clone());
            }
        };
        let stuck = tokio::select! {
            stuck = settling.wait(&clock, Millis::seconds(3_600)) => stuck,
            () = answer => panic!("there is a handle"),
        };
        assert_eq!((stuck, looks), (Ok(()), 3));
    }
}
