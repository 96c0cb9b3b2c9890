//! The world of a test: one primary object, the time, and facts.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use polity_contract::{merge, with_defaults};
use polity_kube_rules::{deletion, finalizers, merge_patch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::bindings::exports::polity::policy::identity;
use crate::contract::{
    self, ActInDoubt, Code, Conclusion, Entry, Event, Failure, IdentityStep, Next, Pass, Question, Request,
    Resolution, RetryClass, Step,
};
use crate::time::millis;
use crate::{Context, Judgement, Kind, Manifest, Need, Time, Verdict, step};

use super::declared::{bad_note, misconfigured, undeclared_need, undeclared_write};
use super::drive::{Driven, describe, drive};
use super::facts::{Answer, Facts};
use super::watch::Watch;

/// The primary object, the time, and the facts about everything else ([`Facts`], whose methods a world has).
///
/// Passes follow one another as in the host. A pass's patch is merged into the object by the rules of the
/// contract. The questions of the last pass to the cluster are in the journal of the next one from the start.
/// A deleting object without finalizers is removed; a pass with a create in doubt cannot remove its finalizer.
///
/// If the world knows the policy's [manifest](World::manifest), it adds the finalizer to the object before
/// the first act, fills in defaults of the configuration, and fails the test if the configuration does not fit its
/// schema, or the policy requests, writes or notes something that the manifest does not declare.
pub struct World {
    facts: Facts,
    object: Option<Value>,
    config: Value,
    now: Time,
    attempt: u32,
    pending: Vec<ActInDoubt>,
    /// Whether the present pass was told of a create that was performed, or may have been.
    in_doubt: bool,
    manifest: Option<polity_contract::Manifest>,
    /// The grants of the binding beyond the policy's needs.
    grants: Vec<Need>,
    /// The questions to the cluster that the last pass asked and used.
    used: BTreeSet<Question>,
    /// The object as the present pass got it.
    snapshot: Option<Value>,
}

impl Deref for World {
    type Target = Facts;
    fn deref(&self) -> &Facts {
        &self.facts
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }
}

/// The time at which a test begins unless it says otherwise: 2026-01-01T00:00:00Z.
const BEGINNING: Time = Time::from_unix_ms(1_767_225_600_000);

impl World {
    /// A world with this primary object.
    pub fn new(object: impl Serialize) -> Self {
        let object = serde_json::to_value(object).expect("an object has a JSON form");
        let facts = Facts::in_namespace(object["metadata"]["namespace"].as_str());
        World {
            facts,
            object: Some(object),
            config: json!({}),
            now: BEGINNING,
            attempt: 0,
            pending: Vec::new(),
            in_doubt: false,
            manifest: None,
            grants: Vec::new(),
            used: BTreeSet::new(),
            snapshot: None,
        }
    }

    /// A world in which the one object that the binding names does not exist.
    pub fn absent() -> Self {
        World {
            object: None,
            ..World::new(Value::Null)
        }
    }

    /// Sets the binding's configuration.
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// Sets the policy's manifest. The world then adds its finalizer, checks the configuration and fills in its
    /// defaults, and refuses requests, writes and notes that the manifest does not declare.
    pub fn manifest(mut self, manifest: &Manifest) -> Self {
        self.manifest = Some(manifest.as_contract().clone());
        self
    }

    /// Grants these requests as well: the policy makes them but does not need them.
    pub fn grants(mut self, needs: impl IntoIterator<Item = Need>) -> Self {
        self.grants.extend(needs);
        self
    }

    /// Sets how many passes in a row ended in `retry` with a failure.
    pub fn set_attempt(&mut self, attempt: u32) {
        self.attempt = attempt;
    }

    /// Sets the creates that the next pass finds in doubt.
    pub fn set_pending(&mut self, pending: Vec<ActInDoubt>) {
        self.pending = pending;
    }

    /// The time of the next pass.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Lets time pass.
    pub fn advance(&mut self, length: Duration) {
        self.now = self.now + length;
    }

    /// The primary object; `None` if it is gone.
    pub fn object(&self) -> Option<&Value> {
        self.object.as_ref()
    }

    /// The primary object's status; null if there is none.
    pub fn status(&self) -> &Value {
        self.object
            .as_ref()
            .map_or(&Value::Null, |object| &object["status"])
    }

    /// Changes the primary object with a merge patch, as another writer would.
    pub fn edit(&mut self, change: Value) {
        merge_patch::apply(&change, self.object.get_or_insert(Value::Null));
    }

    /// Deletes the primary object, as another writer would. It is removed, or it is deleting while it has a
    /// finalizer.
    pub fn delete(&mut self) {
        let now = self.now.whole_seconds().to_string();
        self.edit(json!({ "metadata": { "deletionTimestamp": now } }));
        self.collect();
    }

    /// Runs a pass of a lifecycle policy.
    pub fn pass<T, C, F>(&mut self, policy: impl Fn(Context<T, C>) -> F) -> Ended
    where
        T: Kind,
        C: DeserializeOwned,
        F: Future<Output = Result<Next, Failure>>,
    {
        self.pass_with(|pass| step::lifecycle(pass, &policy))
    }

    /// Runs a pass of a lifecycle policy, given as a function of steps: natively, or as a component.
    pub fn pass_with(&mut self, mut step: impl FnMut(Pass) -> Step) -> Ended {
        let driven = drive(
            self.begin(),
            |pass| match step(pass) {
                Step::Pending(requests) => Err(requests),
                Step::Concluded(conclusion) => Ok(conclusion),
            },
            |conclusion| &conclusion.used,
            |request| {
                admit(
                    &self.manifest,
                    &self.grants,
                    &self.snapshot,
                    &mut self.facts,
                    request,
                )
            },
        );
        self.end(driven)
    }

    /// Runs a pass of an identity policy.
    pub fn judge<T, C, F>(&mut self, policy: impl Fn(Context<T, C>) -> F) -> (Verdict, Ended)
    where
        T: Kind,
        C: DeserializeOwned,
        F: Future<Output = Result<Judgement, Failure>>,
    {
        self.judge_with(|pass| step::identity(pass, &policy))
    }

    /// Runs a pass of an identity policy, given as a function of steps: natively, or as a component.
    pub fn judge_with(&mut self, mut step: impl FnMut(Pass) -> IdentityStep) -> (Verdict, Ended) {
        let driven = drive(
            self.begin(),
            |pass| match step(pass) {
                IdentityStep::Pending(requests) => Err(requests),
                IdentityStep::Concluded(judgement) => Ok(judgement),
            },
            |judgement| &judgement.conclusion.used,
            |request| {
                admit(
                    &self.manifest,
                    &self.grants,
                    &self.snapshot,
                    &mut self.facts,
                    request,
                )
            },
        );
        let verdict = match driven.conclusion.verdict {
            identity::Verdict::Granted(handle) => Verdict::Granted(handle),
            identity::Verdict::Denied => Verdict::Denied,
            identity::Verdict::Released => Verdict::Released,
        };
        let Driven { steps, journal, .. } = driven;
        (
            verdict,
            self.end(Driven {
                steps,
                journal,
                conclusion: driven.conclusion.conclusion,
            }),
        )
    }

    fn begin(&mut self) -> Pass {
        self.facts.cluster().advance_to(self.now);
        self.snapshot.clone_from(&self.object);
        let journal = self.prefetched();
        let pending = std::mem::take(&mut self.pending);
        self.in_doubt = pending
            .iter()
            .any(|create| !matches!(create.resolution, Resolution::Absent));
        Pass {
            object: self.object.as_ref().map(Value::to_string),
            now: self.now.unix_ms(),
            causes: Vec::new(),
            attempt: self.attempt,
            config: self.configuration().to_string(),
            pending,
            journal,
        }
    }

    /// The configuration with its defaults, as the host passes it to the policy.
    fn configuration(&self) -> Value {
        let Some(manifest) = &self.manifest else {
            return with_defaults(&Value::Null, Some(&self.config));
        };
        let config = with_defaults(&manifest.config_schema, Some(&self.config));
        if let Some(wrong) = misconfigured(&manifest.config_schema, &config) {
            panic!("the host refuses this configuration: {wrong}");
        }
        config
    }

    /// The answers to the questions of the last pass, as a watch knows them now. A watch knows no failures.
    fn prefetched(&mut self) -> Vec<Entry> {
        let mut journal = Vec::new();
        for question in &self.used {
            let question = question.clone();
            let request = Request::Ask(contract::Ask { round: 0, question });
            if let Some(answer) = self.facts.answer(&request).filter(is_known) {
                journal.push(Entry { request, answer });
            }
        }
        journal
    }

    /// Publishes the conclusion of a pass.
    fn end(&mut self, driven: Driven) -> Ended {
        let Driven {
            steps,
            journal,
            conclusion,
        } = driven;
        let acted = journal
            .iter()
            .any(|entry| matches!(entry.request, Request::Act(_)));
        if acted {
            self.hold();
        }
        let Conclusion {
            patch,
            events,
            notes,
            mut next,
            used,
        } = conclusion;
        if let Some(wrong) = self
            .manifest
            .as_ref()
            .and_then(|manifest| bad_note(manifest, &notes))
        {
            panic!("{wrong}");
        }
        self.used = watched(&journal, &used);
        let patch: Option<Value> =
            patch.map(|json| serde_json::from_str(&json).expect("the patch of a conclusion is JSON"));
        if let Some(patch) = &patch
            && self.publish(patch)
        {
            let (class, failure) = (RetryClass::Medium, None);
            next = Next::Retry(contract::Retry { class, failure });
        }
        let failed = matches!(&next, Next::Retry(retry) if retry.failure.is_some());
        self.attempt = if failed { self.attempt + 1 } else { 0 };
        Ended {
            steps,
            journal,
            patch,
            events,
            notes,
            next,
        }
    }

    /// Merges a conclusion's patch into the object. Returns whether the finalizer was kept against its will: as long as
    /// a create is in doubt, the object must not vanish.
    fn publish(&mut self, patch: &Value) -> bool {
        let (Some(object), Some(snapshot)) = (&mut self.object, &self.snapshot) else {
            return false;
        };
        let manifest = self.manifest.as_ref();
        if let Some(write) = manifest.and_then(|manifest| undeclared_write(manifest, snapshot, patch)) {
            panic!("the policy writes {write}");
        }
        *object = merge::onto(snapshot, patch, object);
        let finalizer = manifest.and_then(|manifest| manifest.finalizer.as_ref());
        let kept = finalizer.filter(|finalizer| {
            self.in_doubt && finalizers::has(snapshot, finalizer) && !finalizers::has(object, finalizer)
        });
        if let Some(finalizer) = kept {
            finalizers::add(object, finalizer);
        }
        let is_kept = kept.is_some();
        self.collect();
        is_kept
    }

    /// Adds the finalizer to the object, as the host does before the first act.
    fn hold(&mut self) {
        let manifest = self.manifest.as_ref();
        let finalizer = manifest.and_then(|manifest| manifest.finalizer.as_ref());
        if let (Some(object), Some(finalizer)) = (&mut self.object, finalizer) {
            finalizers::add(object, finalizer);
        }
    }

    /// Removes the object if it is deleting and has no finalizer.
    fn collect(&mut self) {
        if self.object.as_ref().is_some_and(deletion::is_released) {
            self.object = None;
        }
    }

    /// Lets the time pass until the next pass is due. A retry takes `retry`.
    pub fn wait(&mut self, next: &Next, retry: Duration) {
        let length = match next {
            Next::Settled(None) => Duration::ZERO,
            Next::Settled(Some(ms)) | Next::After(ms) => Duration::from_millis(*ms),
            Next::Retry(_) => retry,
        };
        self.now = Time::from_unix_ms(self.now.unix_ms() + millis(length));
    }
}

/// The answer to a request that the policy may make.
fn admit(
    manifest: &Option<polity_contract::Manifest>,
    grants: &[Need],
    snapshot: &Option<Value>,
    facts: &mut Facts,
    request: &Request,
) -> Option<Answer> {
    // The host would find it only when the pass concludes, after the act.
    let edits = matches!(request, Request::Act(_)).then(Watch::edits).flatten();
    if let (Some(manifest), Some(snapshot), Some(edits)) = (manifest, snapshot, edits) {
        let patch = serde_json::from_str(&edits).expect("a patch is JSON");
        if let Some(write) = undeclared_write(manifest, snapshot, &patch) {
            panic!("before {} the policy writes {write}", describe(request));
        }
    }
    let declared = manifest.as_ref().map(|manifest| manifest.needs.as_slice());
    if let Some(undeclared) = declared.and_then(|declared| undeclared_need(declared, grants, request)) {
        panic!("the policy requests {undeclared}");
    }
    facts.answer(request)
}

/// Whether a watch could give this answer.
fn is_known(answer: &Answer) -> bool {
    match answer {
        Ok(_) => true,
        Err(failure) => failure.code == Code::NotFound,
    }
}

/// The questions in a journal on which a conclusion rests and which a watch answers.
fn watched(journal: &[Entry], used: &[u32]) -> BTreeSet<Question> {
    let entries = used.iter().filter_map(|index| journal.get(*index as usize));
    let questions = entries.filter_map(|entry| match &entry.request {
        Request::Ask(ask) => Some(&ask.question),
        Request::Act(_) => None,
    });
    let is_watched = |question: &&Question| match question {
        Question::Object(query) => !query.latest,
        Question::Objects(query) => !query.latest,
        _ => false,
    };
    questions.filter(is_watched).cloned().collect()
}

/// A pass that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The requests of each step but the last.
    pub steps: Vec<Vec<Request>>,
    /// All requests with their answers. The answers that the pass began with come first.
    pub journal: Vec<Entry>,
    /// The merge patch of the primary object.
    pub patch: Option<Value>,
    /// Events.
    pub events: Vec<Event>,
    /// Notes.
    pub notes: Vec<String>,
    /// When the object gets its next pass.
    pub next: Next,
}

impl Ended {
    /// The requests of each step, one line each: `vm.get {"id":"vm-1"}`.
    pub fn requests(&self) -> Vec<Vec<String>> {
        self.steps
            .iter()
            .map(|step| step.iter().map(describe).collect())
            .collect()
    }

    /// The acts alone, one line each.
    pub fn acts(&self) -> Vec<String> {
        let acts = self
            .journal
            .iter()
            .filter(|entry| matches!(entry.request, Request::Act(_)));
        acts.map(|entry| describe(&entry.request)).collect()
    }
}
