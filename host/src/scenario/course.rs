//! The course of a scenario: which steps are done, and when the next ones are due.
//!
//! # Flow
//!
//! All conditions are watched at the same time. A step whose condition held is due `after` that moment. One
//! task performs the steps that are due, one after another, in the order of their times.
//!
//! # Guarantees
//!
//! - Times count from one moment. A restart on the same data folder keeps that moment, the steps that are
//!   done, and the steps that are due. A condition that held once need not hold again.
//! - A step that may have been under way when the process was killed is performed again. A deletion is
//!   repeated only for the same object.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use futures::StreamExt as _;
use polity_cluster::Cluster;
use polity_core::call::Write;
use polity_core::contract::{Act, Code, ObjectDelete, ObjectRef, Precondition};
use polity_core::object::Object;
use polity_core::time::Unix;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Condition, Step, named};
use crate::clock::Clock;
use crate::data::Data;
use crate::install::{self, Target};

/// The file in the data folder that holds the position of the scenario.
const FILE: &str = "scenario";

type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// The steps that are neither done nor failed, in words.
type Left = Vec<Arc<str>>;

/// A scenario that is under way.
pub struct Running {
    left: Arc<Mutex<Left>>,
    left_for_bindings: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Running {
    /// The steps that are neither done nor failed, each with what it waits for.
    pub fn steps_left(&self) -> Vec<Arc<str>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a step is left that changes a binding, or what its loading depends on.
    pub(crate) fn may_mend_bindings(&self) -> bool {
        self.left_for_bindings.load(Ordering::SeqCst) > 0
    }

    /// A scenario that plays nothing. The test sets which steps are left.
    #[cfg(test)]
    pub(crate) fn with_steps_left(left: usize) -> (Self, Arc<Mutex<Left>>) {
        let running = Self::standing(left, 0, 0);
        let left = running.left.clone();
        (running, left)
    }

    /// A scenario that plays nothing, with so many steps left, left for bindings, and failed.
    #[cfg(test)]
    pub(crate) fn standing(left: usize, left_for_bindings: usize, failed: usize) -> Self {
        let [left_for_bindings, failed] =
            [left_for_bindings, failed].map(|count| Arc::new(AtomicUsize::new(count)));
        Running {
            left: Arc::new(Mutex::new(vec!["a step".into(); left])),
            left_for_bindings,
            failed,
        }
    }

    /// The number of steps that failed.
    pub fn steps_failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }
}

/// The position of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Position {
    /// The digest of the steps. A scenario with other steps starts from its beginning.
    of: String,
    /// The time from which the scenario's times count.
    start: Unix,
    steps: Vec<Progress>,
}

/// The progress of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Progress {
    /// The step waits for its time, and then for its condition.
    Waiting,
    /// The condition held. The step is due at this time.
    Due(Unix),
    /// The object with this uid is being deleted.
    Deleting(String),
    Taken,
    Failed,
}

impl Position {
    /// The position at the beginning of a scenario that starts at `now`.
    pub(super) fn beginning(of: &str, steps: &[Step], now: Unix) -> Self {
        Position {
            of: of.to_owned(),
            start: now,
            steps: vec![Progress::Waiting; steps.len()],
        }
    }

    /// The position that an earlier process left in this folder; otherwise the beginning, which is saved.
    pub(super) fn resume(of: &str, steps: &[Step], data: &Data, now: Unix) -> Result<Self> {
        let text = data.read(FILE);
        let text = text.with_context(|| format!("cannot read {FILE} in the data folder"))?;
        let left = text
            .map(|text| serde_json::from_str::<Position>(&text))
            .transpose();
        let left =
            left.with_context(|| format!("{FILE} in the data folder is not the position of a scenario"))?;
        match left.filter(|left| left.of == of && left.steps.len() == steps.len()) {
            Some(left) => Ok(left),
            None => {
                let beginning = Self::beginning(of, steps, now);
                beginning
                    .save(data)
                    .context("cannot save the position of the scenario")?;
                Ok(beginning)
            }
        }
    }

    /// The time from which the scenario's times count.
    pub(crate) fn start(&self) -> Unix {
        self.start
    }

    fn save(&self, data: &Data) -> Result<()> {
        Ok(data.replace(FILE, &serde_json::to_string(self)?)?)
    }

    /// The next step and its time: first a deletion that was under way, then the step that is due first.
    fn next(&self) -> Option<(Unix, usize)> {
        let at = |(index, step): (usize, &Progress)| match step {
            Progress::Due(at) => Some((*at, index)),
            Progress::Deleting(_) => Some((Unix::default(), index)),
            Progress::Waiting | Progress::Taken | Progress::Failed => None,
        };
        self.steps.iter().enumerate().filter_map(at).min()
    }

    fn count(&self, wanted: impl Fn(&Progress) -> bool) -> usize {
        self.steps.iter().filter(|step| wanted(step)).count()
    }
}

/// Performs the steps.
pub(super) struct Course {
    pub(super) steps: Vec<Step>,
    pub(super) position: Position,
    pub(super) clock: Arc<Clock>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) target: Target,
    pub(super) report: Report,
    /// The folder in which the position is saved.
    pub(super) data: Option<Arc<Data>>,
}

impl Course {
    /// Starts to perform the steps. `held` tells which conditions hold (see [`Course::watch_conditions`]).
    pub(super) fn start(self, held: mpsc::Receiver<usize>) -> Running {
        let running = Running {
            left: Arc::default(),
            left_for_bindings: Arc::default(),
            failed: Arc::default(),
        };
        let (left, failed) = (running.left.clone(), running.failed.clone());
        let left_for_bindings = running.left_for_bindings.clone();
        let for_bindings: Vec<bool> = self.steps.iter().map(Step::is_for_bindings).collect();
        let words: Vec<Arc<str>> = self.steps.iter().map(|step| step.words().into()).collect();
        let clock = self.clock.clone();
        let tell = move |position: &Position| {
            // A failure ends a run. Before that, all steps that are due are taken, so that all their failures are told.
            if position.next().is_none_or(|(at, _)| at > clock.now().unix) {
                failed.store(position.count(|step| *step == Progress::Failed), Ordering::SeqCst);
            }
            let is_left = |step: &Progress| !matches!(step, Progress::Taken | Progress::Failed);
            let now_left = position
                .steps
                .iter()
                .zip(&words)
                .filter(|(step, _)| is_left(step));
            let now_left = now_left.map(|(_, words)| words.clone()).collect();
            *left.lock().unwrap_or_else(PoisonError::into_inner) = now_left;
            let mut steps = position.steps.iter().zip(&for_bindings);
            let steps = steps.by_ref().filter(|(step, is_one)| **is_one && is_left(step));
            left_for_bindings.store(steps.count(), Ordering::SeqCst);
        };
        tell(&self.position);
        tokio::spawn(self.run(held, tell));
        running
    }

    async fn run(mut self, mut held: mpsc::Receiver<usize>, tell: impl Fn(&Position) + Send) {
        loop {
            let next = self.position.next();
            tokio::select! {
                biased;
                Some(index) = held.recv() => self.on_condition(index),
                () = self.until(next.map(|(at, _)| at)), if next.is_some() => {
                    if let Some((at, index)) = next && at <= self.clock.now().unix {
                        self.take(index).await;
                        tell(&self.position);
                    }
                }
                else => return,
            }
        }
    }

    async fn until(&self, at: Option<Unix>) {
        let now = self.clock.now();
        let left = at.unwrap_or_default() - now.unix;
        self.clock.sleep_until(now.boot + left).await;
    }

    /// Watches the conditions and sends the index of each step whose condition holds, once. A step without a
    /// condition is due at its time. When this returns, the watches of all conditions whose time has come have begun,
    /// and those that hold are stored: such a condition may stop holding at once, and must not be missed.
    ///
    /// A watch whose first list failed has begun, too. It lists again later, but this does not wait for that: the kind may
    /// be served only when a later step or a policy brings its definition.
    pub(super) async fn watch_conditions(&mut self) -> mpsc::Receiver<usize> {
        // Each step sends once, so that no sender waits.
        let (tells, mut held) = mpsc::channel(self.steps.len().max(1));
        let (begins, mut begun) = mpsc::channel::<()>(1);
        let now = self.clock.now().unix;
        for (index, step) in self.steps.clone().into_iter().enumerate() {
            if self.position.steps[index] != Progress::Waiting {
                continue;
            }
            let earliest = self.earliest(&step);
            let Some(condition) = step.when else {
                self.position.steps[index] = Progress::Due(earliest + step.after.unwrap_or_default().into());
                continue;
            };
            let (clock, cluster, tells) = (self.clock.clone(), self.cluster.clone(), tells.clone());
            let mut begins = (earliest <= now).then(|| begins.clone());
            tokio::spawn(async move {
                // What is due now does not wait for a clock that stands still until all is ready.
                if begins.is_none() {
                    clock.sleep(earliest - clock.now().unix).await;
                }
                let mut watch = std::pin::pin!(condition.watch(&cluster));
                while let Some(holds) = watch.next().await {
                    if holds {
                        // The receiver is gone once the host ends.
                        let _ = tells.send(index).await;
                        return;
                    }
                    begins = None;
                }
                drop(begins);
            });
        }
        drop(begins);
        // Nothing is ever sent: it ends when all watches have begun.
        let _ = begun.recv().await;
        while let Ok(index) = held.try_recv() {
            self.on_condition(index);
        }
        held
    }

    fn earliest(&self, step: &Step) -> Unix {
        self.position.start + step.at.unwrap_or_default().into()
    }

    fn on_condition(&mut self, index: usize) {
        let after = self.steps[index].after.unwrap_or_default().into();
        self.set(index, Progress::Due(self.clock.now().unix + after));
    }

    fn set(&mut self, index: usize, progress: Progress) {
        self.position.steps[index] = progress;
        if let Some(data) = &self.data
            && let Err(e) = self.position.save(data)
        {
            (self.report)(&format!("scenario: cannot save the position: {e:#}"));
        }
    }

    async fn take(&mut self, index: usize) {
        let step = self.steps[index].clone();
        let taken = match &step.delete {
            Some(object) if step.apply.is_none() && step.patch.is_none() => self.delete(index, object).await,
            _ => step.change(&self.cluster, self.target, &*self.report).await,
        };
        match taken {
            Ok(done) => {
                (self.report)(&format!("scenario: {done}"));
                self.set(index, Progress::Taken);
            }
            Err(e) => {
                (self.report)(&format!("scenario: a step failed: {e:#}"));
                self.set(index, Progress::Failed);
            }
        }
    }

    /// Deletes the object of this name. After a restart in the middle of a deletion, a new object of the same
    /// name is left alone.
    async fn delete(&mut self, index: usize, object: &ObjectRef) -> Result<String> {
        let stands = uid(&self.cluster, object).await?;
        let uid = match (&self.position.steps[index], stands) {
            (Progress::Deleting(begun), Some(stands)) if *begun == stands => stands,
            (Progress::Deleting(_), _) => return Ok(format!("deleted {}", named(object))),
            (_, Some(stands)) => stands,
            (_, None) => return Err(anyhow!("there is no {} to delete", named(object))),
        };
        self.set(index, Progress::Deleting(uid.clone()));
        let delete = ObjectDelete {
            object: object.clone(),
            precondition: Precondition {
                uid,
                resource_version: None,
            },
            grace_period_seconds: None,
            propagation_policy: None,
        };
        let deleted = self.cluster.write(&Write::Act(Act::Delete(delete))).await;
        deleted.map_err(|f| anyhow!("{f}"))?;
        Ok(format!("deleted {}", named(object)))
    }
}

/// The uid of the object of this name; `None` if there is none.
async fn uid(cluster: &Cluster, object: &ObjectRef) -> Result<Option<String>> {
    match cluster.latest(object.clone()).await {
        Ok(found) => Ok(Some(Object::new(found).uid().to_owned())),
        Err(failure) if failure.code == Code::NotFound => Ok(None),
        Err(failure) => Err(anyhow!("{failure}")),
    }
}

impl Step {
    /// What the step does, and what it waits for.
    fn words(&self) -> String {
        let does = match (&self.apply, &self.patch, &self.delete) {
            (Some(object), ..) => format!("apply {}", named(&Object::new(object.clone()).reference())),
            (None, Some(patch), _) => format!("patch {}", named(&patch.object)),
            (None, None, Some(object)) => format!("delete {}", named(object)),
            (None, None, None) => "do nothing".to_owned(),
        };
        match &self.when {
            Some(Condition { object, path, equals }) => {
                let value = equals
                    .as_ref()
                    .map_or_else(|| "any value".to_owned(), Value::to_string);
                format!("to {does}, when {path} of {} is {value}", named(object))
            }
            None => format!("to {does}"),
        }
    }

    /// Whether the step changes a binding, or what its loading depends on: a connection or a definition.
    fn is_for_bindings(&self) -> bool {
        let applied = self
            .apply
            .iter()
            .map(|object| object["kind"].as_str().unwrap_or_default());
        let patched = self.patch.iter().map(|patch| &*patch.object.kind.kind);
        let deleted = self.delete.iter().map(|object| &*object.kind.kind);
        let mut kinds = applied.chain(patched).chain(deleted);
        kinds.any(|kind| ["PolicyBinding", "CloudConnection", "CustomResourceDefinition"].contains(&kind))
    }

    /// Performs an `apply` or a `patch`.
    async fn change(
        &self,
        cluster: &Cluster,
        target: Target,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<String> {
        if let Some(object) = &self.apply {
            install::apply_one(cluster, object, target, report).await?;
            let applied = named(&Object::new(object.clone()).reference());
            return Ok(format!("applied {applied}"));
        }
        let patch = self.patch.as_ref();
        let patch = patch.context("a step needs one of apply, patch and delete")?;
        let write = Write::Patch {
            object: patch.object.clone(),
            subresource: patch.subresource.clone(),
            precondition: None,
            patch: patch.patch.clone(),
        };
        cluster.write(&write).await.map_err(|f| anyhow!("{f}"))?;
        Ok(format!("patched {}", named(&patch.object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn steps() -> Vec<Step> {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "b"});
        let when = json!({"object": object, "path": "status.phase"});
        let steps = json!([{"at": "5m", "delete": object}, {"when": when, "after": "1m", "delete": object}]);
        serde_json::from_value(steps).expect("steps")
    }

    #[test]
    fn a_restart_keeps_the_start_and_what_is_due_and_another_scenario_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = Data::open(folder.path()).expect("a data folder");
        let mut position = Position::resume("a", &steps(), &data, Unix(1_000)).expect("a beginning");
        assert_eq!(position, Position::beginning("a", &steps(), Unix(1_000)));
        position.steps = vec![Progress::Taken, Progress::Due(Unix(70_000))];
        position.save(&data).expect("saved");
        let next = Position::resume("a", &steps(), &data, Unix(900_000)).expect("a position");
        assert_eq!(
            (next.start(), next.next()),
            (Unix(1_000), Some((Unix(70_000), 1)))
        );
        let other = Position::resume("b", &steps(), &data, Unix(900_000)).expect("a beginning");
        assert_eq!((other.start(), other.next()), (Unix(900_000), None));
    }

    #[test]
    fn a_position_that_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = Data::open(folder.path()).expect("a data folder");
        data.replace(FILE, "{").expect("written");
        let refused = Position::resume("a", &steps(), &data, Unix(0)).expect_err("no position");
        assert!(format!("{refused:#}").contains("scenario in the data folder is not the position"));
    }

    #[test]
    fn what_was_under_way_comes_first_and_then_what_is_due_first() {
        let mut position = Position::beginning("a", &steps(), Unix(0));
        position.steps = vec![
            Progress::Due(Unix(5)),
            Progress::Due(Unix(3)),
            Progress::Due(Unix(3)),
            Progress::Deleting("uid".into()),
        ];
        let mut order = Vec::new();
        while let Some((_, index)) = position.next() {
            order.push(index);
            position.steps[index] = Progress::Taken;
        }
        assert_eq!(order, [3, 1, 2, 0]);
    }

    /// A ConfigMap in this phase.
    fn in_phase(phase: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"},
            "data": {"phase": phase}})
    }

    /// Steps, each of which waits for one of these phases.
    fn awaiting(phases: &[&str]) -> Vec<Step> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a"});
        let step = |phase: &&str| {
            let when = json!({"object": object, "path": "data.phase", "equals": phase});
            serde_json::from_value(json!({"when": when, "delete": object})).expect("a step")
        };
        phases.iter().map(step).collect()
    }

    /// The course of these steps from their beginning, and its cluster: the embedded API.
    fn course(steps: Vec<Step>) -> (Course, Arc<Cluster>) {
        let clock = Arc::new(Clock::standing(crate::clock::Speed::REAL, Unix::default()));
        let api = crate::standalone::open(&clock, None, None).expect("the embedded API");
        let cluster = Cluster::new(kube::Client::new(api, "default"), ("polity-system", "polity"));
        let cluster = Arc::new(cluster);
        let course = Course {
            position: Position::beginning("a", &steps, clock.now().unix),
            steps,
            clock,
            cluster: cluster.clone(),
            target: Target::Standalone,
            report: Arc::new(|_| {}),
            data: None,
        };
        (course, cluster)
    }

    #[test]
    fn a_step_that_changes_a_binding_or_what_it_needs_may_mend_it_and_others_may_not() {
        for (kind, mends) in [
            ("PolicyBinding", true),
            ("CloudConnection", true),
            ("CustomResourceDefinition", true),
            ("Machine", false),
        ] {
            let object = json!({"apiVersion": "a/v1", "kind": kind, "name": "one"});
            for step in [
                json!({"apply": object}),
                json!({"patch": {"object": object, "patch": {}}}),
                json!({"delete": object}),
            ] {
                let step: Step = serde_json::from_value(step).expect("a step");
                assert_eq!(step.is_for_bindings(), mends, "{step:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_holds_for_a_moment_is_not_missed_even_while_the_clock_stands_still() {
        let (mut course, cluster) = course(awaiting(&["first", "through", "after"]));
        cluster.apply(&in_phase("first")).await.expect("applied");
        let mut held = course.watch_conditions().await;
        let waits = |course: &Course| course.position.count(|step| *step == Progress::Waiting);
        assert_eq!(waits(&course), 2, "the first one holds, and that is stored");
        for phase in ["through", "after"] {
            cluster.apply(&in_phase(phase)).await.expect("applied");
        }
        let mut seen = Vec::new();
        for _ in 0..2 {
            let next = tokio::time::timeout(std::time::Duration::from_secs(60), held.recv());
            seen.extend(next.await.expect("both are seen"));
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    }
}
