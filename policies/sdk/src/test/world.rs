//! The world of a test: one primary object, the time, and facts.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::bindings::exports::polity::policy::identity;
use crate::contract::{
    ActInDoubt, Conclusion, Entry, Event, Failure, IdentityStep, Next, Pass, Request, Step,
};
use crate::time::millis;
use crate::{Context, Judgement, Kind, Manifest, Time, Verdict, step};

use super::drive::{Driven, describe, drive};
use super::facts::Facts;

/// The primary object, the time, and what is true of everything else ([`Facts`], whose methods a world has).
///
/// Passes follow one another as under the host: a pass's patch is applied to the object; the finalizer that the
/// [manifest](World::manifest) names is there before the first act; a deleting object without finalizers is gone.
pub struct World {
    facts: Facts,
    object: Option<Value>,
    config: Value,
    now: Time,
    attempt: u32,
    pending: Vec<ActInDoubt>,
    finalizer: Option<String>,
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

/// When the passes of a test run unless it says otherwise: 2026-01-01T00:00:00Z.
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
            finalizer: None,
        }
    }

    /// A world in which the one object that the binding names is absent.
    pub fn absent() -> Self {
        World {
            object: None,
            ..World::new(Value::Null)
        }
    }

    /// With the binding's configuration.
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// With a policy of this manifest: the host keeps its finalizer.
    pub fn manifest(mut self, manifest: &Manifest) -> Self {
        self.finalizer.clone_from(&manifest.as_contract().finalizer);
        self
    }

    /// How many passes in a row before the next one ended in `retry` with a failure.
    pub fn set_attempt(&mut self, attempt: u32) {
        self.attempt = attempt;
    }

    /// Creates that the next pass finds in doubt.
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

    /// The primary object; none when it is gone.
    pub fn object(&self) -> Option<&Value> {
        self.object.as_ref()
    }

    /// The primary object's status; `null` when there is none.
    pub fn status(&self) -> &Value {
        self.object
            .as_ref()
            .map_or(&Value::Null, |object| &object["status"])
    }

    /// Changes the primary object as somebody else would: with a merge patch.
    pub fn edit(&mut self, change: Value) {
        merge(self.object.get_or_insert(Value::Null), change);
    }

    /// Somebody deletes the primary object: gone, or deleting while a finalizer holds it.
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

    /// Runs a pass of a lifecycle policy that is given as its steps: natively, or as a component.
    pub fn pass_with(&mut self, mut step: impl FnMut(Pass) -> Step) -> Ended {
        let driven = drive(
            self.begin(),
            |pass| match step(pass) {
                Step::Pending(requests) => Err(requests),
                Step::Concluded(conclusion) => Ok(conclusion),
            },
            |conclusion| &conclusion.used,
            |request| self.facts.answer(request),
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

    /// Runs a pass of an identity policy that is given as its steps: natively, or as a component.
    pub fn judge_with(&mut self, mut step: impl FnMut(Pass) -> IdentityStep) -> (Verdict, Ended) {
        let driven = drive(
            self.begin(),
            |pass| match step(pass) {
                IdentityStep::Pending(requests) => Err(requests),
                IdentityStep::Concluded(judgement) => Ok(judgement),
            },
            |judgement| &judgement.conclusion.used,
            |request| self.facts.answer(request),
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
        Pass {
            object: self.object.as_ref().map(Value::to_string),
            now: self.now.unix_ms(),
            causes: Vec::new(),
            attempt: self.attempt,
            config: self.config.to_string(),
            pending: std::mem::take(&mut self.pending),
            journal: Vec::new(),
        }
    }

    /// Publishes what a pass concluded.
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
            next,
            ..
        } = conclusion;
        let patch: Option<Value> =
            patch.map(|json| serde_json::from_str(&json).expect("the patch of a conclusion is JSON"));
        if let (Some(change), true) = (&patch, self.object.is_some()) {
            self.edit(change.clone());
            self.collect();
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

    /// Puts the finalizer on the object, as the host does before the first act.
    fn hold(&mut self) {
        let (Some(object), Some(finalizer)) = (&mut self.object, &self.finalizer) else {
            return;
        };
        let held = &mut object["metadata"]["finalizers"];
        if held.is_null() {
            *held = json!([]);
        }
        if let Some(held) = held
            .as_array_mut()
            .filter(|held| !held.contains(&json!(finalizer)))
        {
            held.push(json!(finalizer));
        }
    }

    /// Removes the object if it is deleting and nothing holds it.
    fn collect(&mut self) {
        let gone = self.object.as_ref().is_some_and(|object| {
            let metadata = &object["metadata"];
            !metadata["deletionTimestamp"].is_null()
                && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        });
        if gone {
            self.object = None;
        }
    }

    /// Lets the time pass that a pass asked to be left alone; a retry waits `retry`.
    pub fn wait(&mut self, next: &Next, retry: Duration) {
        let length = match next {
            Next::Settled(None) => Duration::ZERO,
            Next::Settled(Some(ms)) | Next::After(ms) => Duration::from_millis(*ms),
            Next::Retry(_) => retry,
        };
        self.now = Time::from_unix_ms(self.now.unix_ms() + millis(length));
    }
}

/// Applies a merge patch (RFC 7396).
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (field, change) in patch {
        if change.is_null() {
            fields.remove(&field);
        } else {
            merge(fields.entry(field).or_insert(Value::Null), change);
        }
    }
}

/// What a pass did.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The requests of each step but the last.
    pub steps: Vec<Vec<Request>>,
    /// All requests with their answers.
    pub journal: Vec<Entry>,
    /// The merge patch of the primary object.
    pub patch: Option<Value>,
    /// Events.
    pub events: Vec<Event>,
    /// Notes.
    pub notes: Vec<String>,
    /// When to look again.
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
