//! The other objects of a test's world: a small cluster in memory.

use std::cell::{Ref, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use polity_contract::IDENTITY;
use polity_kube_rules::fields::FieldSelector;
use polity_kube_rules::labels::LabelSelector;
use polity_kube_rules::{conditions, merge_patch, text};
use serde::Serialize;
use serde_json::{Value, json};

use crate::contract::{
    Act, Code, Eviction, Failure, ListQuery, ObjectDelete, ObjectPatch, ObjectRef, Precondition, Question,
    Request,
};
use crate::kube::drain::Budget;
use crate::{Kind, Time};

use super::facts::Answer;

/// The objects of a cluster. They answer asks, and acts change them. A clone is a handle on the same cluster,
/// so the worlds of several objects can share one.
///
/// Acts are performed on the objects: patches are merged, deletions wait for finalizers, Pods end after their
/// grace period, and evictions respect the disruption budgets, by the rule of a real API server but with the
/// status that the test gives them. A precondition that fails is `aborted`.
#[derive(Clone, Default)]
pub struct Cluster(Rc<RefCell<Objects>>);

#[derive(Default)]
struct Objects {
    all: Vec<Value>,
    now: Time,
    version: u64,
}

impl Cluster {
    /// Adds this object, or replaces the one of the same kind and name. It gets a uid and a version.
    pub fn put(&self, object: impl Serialize) {
        let object = serde_json::to_value(object).expect("an object has a JSON form");
        self.0.borrow_mut().put(object);
    }

    /// Removes the object of this kind and name.
    pub fn remove(&self, kind: &str, name: &str) {
        let mut objects = self.0.borrow_mut();
        objects
            .all
            .retain(|object| object["kind"] != kind || object["metadata"]["name"] != name);
    }

    /// Changes an object with a merge patch, as another writer would.
    ///
    /// # Panics
    /// There is no such object.
    pub fn edit(&self, kind: &str, name: &str, change: Value) {
        let mut objects = self.0.borrow_mut();
        let at = objects.position(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        objects.change(at.expect("the object is there"), change);
    }

    /// The object of this kind and name.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.all()
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .cloned()
    }

    /// Every object.
    pub fn all(&self) -> Ref<'_, [Value]> {
        Ref::map(self.0.borrow(), |objects| objects.all.as_slice())
    }

    /// Lets time pass: Pods whose grace period is over are removed.
    pub fn advance_to(&self, now: Time) {
        let mut objects = self.0.borrow_mut();
        objects.now = now;
        let over = |object: &Value| {
            let end: Option<Time> = object["metadata"]["deletionTimestamp"]
                .as_str()
                .and_then(|t| t.parse().ok());
            object["kind"] == "Pod" && end.is_some_and(|end| end <= now) && !is_held(object)
        };
        objects.all.retain(|object| !over(object));
    }

    /// The answer to a request about objects; `None` if the cluster has no objects, and for other requests.
    pub fn answer(&self, request: &Request) -> Option<Answer> {
        let mut objects = self.0.borrow_mut();
        if objects.all.is_empty() {
            return None;
        }
        let answer = match request {
            Request::Ask(ask) => match &ask.question {
                Question::Object(query) => objects
                    .object(&query.object)
                    .map(|object| project(&object, &query.projection)),
                Question::Objects(query) => objects.list(query),
                Question::Secret(secret) => Ok(objects.secret(secret)),
                _ => return None,
            },
            Request::Act(act) => match act {
                Act::Create(create) => objects.create(&create.object),
                Act::Patch(patch) => objects.patch(patch),
                Act::Delete(delete) => objects.delete(delete),
                Act::Evict(eviction) => objects.evict(eviction),
                Act::Cloud(_) | Act::Mint(_) | Act::Revoke(_) => return None,
            },
        };
        Some(answer.and_then(|value| match value.to_string() {
            long if long.len() > ANSWER => {
                let message = format!("an answer of {} bytes, of at most {ANSWER}", long.len());
                Err(Failure::new(Code::ResourceExhausted, message))
            }
            answer => Ok(answer),
        }))
    }
}

/// The most bytes of an answer: the default of a binding.
const ANSWER: usize = 1 << 20;

/// Keeps the fields at these paths and those that identify the object, as the host does.
fn project(object: &Value, paths: &[String]) -> Value {
    if paths.is_empty() {
        return object.clone();
    }
    let paths = IDENTITY.into_iter().chain(paths.iter().map(String::as_str));
    let whole = text::canonical(object.clone());
    text::tree(&text::projection(&whole, paths))
}

fn is_held(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|held| !held.is_empty())
}

type Found = Result<Value, Failure>;

impl Objects {
    fn position(&self, is: impl Fn(&Value) -> bool) -> Option<usize> {
        self.all.iter().position(is)
    }

    fn put(&mut self, mut object: Value) {
        let same = |other: &Value| {
            ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
                .iter()
                .all(|path| other.pointer(path) == object.pointer(path))
        };
        let before = self.all.iter().position(same).map(|at| self.all.remove(at));
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let own = version(&object);
        // A version that a test sets is kept. A version from before this write is out of date.
        let stated = !own.is_null() && before.is_none_or(|before| version(&before) != own);
        self.version += 1;
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", metadata["name"].as_str().unwrap_or_default()).into();
        }
        if !stated {
            metadata["resourceVersion"] = self.version.to_string().into();
        }
        self.all.push(object);
    }

    fn change(&mut self, at: usize, change: Value) {
        self.version += 1;
        let object = &mut self.all[at];
        merge_patch::apply(&change, object);
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
    }

    fn find(&self, wanted: &ObjectRef) -> Result<usize, Failure> {
        let is = |object: &Value| {
            object["apiVersion"] == wanted.api_version.as_str()
                && object["kind"] == wanted.kind.as_str()
                && object["metadata"]["name"] == wanted.name.as_str()
                && object["metadata"]["namespace"].as_str() == wanted.namespace.as_deref()
        };
        let missing = || {
            Failure::new(
                Code::NotFound,
                format!("{} {} not found", wanted.kind, wanted.name),
            )
        };
        self.position(is).ok_or_else(missing)
    }

    fn object(&self, wanted: &ObjectRef) -> Found {
        Ok(self.all[self.find(wanted)?].clone())
    }

    /// What a policy may know of a Secret.
    fn secret(&self, wanted: &ObjectRef) -> Value {
        let Ok(at) = self.find(wanted) else {
            return json!({"exists": false, "keys": [], "digest": null});
        };
        let data = &self.all[at]["data"];
        let keys: Vec<&String> = data
            .as_object()
            .into_iter()
            .flat_map(|data| data.keys())
            .collect();
        let mut digest = DefaultHasher::new();
        (&wanted.namespace, &wanted.name, data.to_string()).hash(&mut digest);
        json!({"exists": true, "keys": keys, "digest": format!("{:016x}", digest.finish())})
    }

    fn list(&self, query: &ListQuery) -> Found {
        let wanted = |object: &&Value| {
            let part = |selector: &Option<String>, matches: fn(&Value, &str) -> bool| {
                selector
                    .as_deref()
                    .is_none_or(|selector| matches(object, selector))
            };
            let namespace = |ns: &str| object["metadata"]["namespace"] == ns;
            object["apiVersion"] == query.api_version.as_str()
                && object["kind"] == query.kind.as_str()
                && query.namespace.as_deref().is_none_or(namespace)
                && part(&query.label_selector, labels_match)
                && part(&query.field_selector, fields_match)
        };
        let mut found: Vec<&Value> = self.all.iter().filter(wanted).collect();
        found.sort_by_key(|object| {
            let name = |field| object["metadata"][field].as_str().unwrap_or("").to_owned();
            (name("namespace"), name("name"))
        });
        if query.limit > 0 && found.len() > query.limit as usize {
            let message = format!("more than {} objects", query.limit);
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        let projected = found.iter().map(|object| project(object, &query.projection));
        Ok(projected.collect())
    }

    fn create(&mut self, object: &str) -> Found {
        let object: Value = serde_json::from_str(object).expect("a created object is JSON");
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let reference = ObjectRef {
            cluster: None,
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").unwrap_or_default(),
        };
        if self.find(&reference).is_ok() {
            let message = format!("{} {} exists", reference.kind, reference.name);
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        self.put(object);
        Ok(written(&self.all[self.all.len() - 1]))
    }

    fn patch(&mut self, patch: &ObjectPatch) -> Found {
        let at = self.checked(&patch.object, &patch.precondition)?;
        let mut change: Value = serde_json::from_str(&patch.patch).expect("a patch is JSON");
        if let (Some(fields), subresource) = (change.as_object_mut(), patch.subresource.as_deref()) {
            // As in an API server: `status` is written only through its subresource, and the subresource
            // writes nothing else.
            fields.retain(|field, _| (field == "status") == (subresource == Some("status")));
        }
        self.change(at, change);
        Ok(written(&self.all[at]))
    }

    fn delete(&mut self, delete: &ObjectDelete) -> Found {
        let at = self.checked(&delete.object, &delete.precondition)?;
        Ok(self.end(at, delete.grace_period_seconds))
    }

    /// By the rule of kube-apiserver 1.36 (`pkg/registry/core/pod/storage/eviction.go`, `EvictionREST.Create`). A Pod
    /// without a phase is taken for one that runs.
    fn evict(&mut self, eviction: &Eviction) -> Found {
        let at = self.checked(&eviction.object, &eviction.precondition)?;
        if !ignores_budgets(&self.all[at]) {
            match self.budgets_of(at)[..] {
                [] => {}
                [budget] if is_spared(&self.all[budget], &self.all[at]) => {}
                [budget] => self.charge(budget)?,
                _ => {
                    let message = "this pod has more than one PodDisruptionBudget";
                    return Err(Failure::new(Code::FailedPrecondition, message));
                }
            }
        }
        Ok(self.end(at, eviction.grace_period_seconds))
    }

    /// The budgets that cover a Pod.
    fn budgets_of(&self, at: usize) -> Vec<usize> {
        let pod = serde_json::from_value(self.all[at].clone()).expect("a Pod is a Pod");
        let covers = |other: &usize| {
            let other = &self.all[*other];
            let budget = serde_json::from_value::<Budget>(other.clone());
            other["kind"] == Budget::KIND && budget.is_ok_and(|budget| budget.covers(&pod))
        };
        (0..self.all.len()).filter(covers).collect()
    }

    /// Takes one disruption from a budget. The refusals are those of `wit/ERRORS.md`.
    fn charge(&mut self, at: usize) -> Result<(), Failure> {
        let (metadata, status) = (&self.all[at]["metadata"], &self.all[at]["status"]);
        let name = metadata["name"].as_str().unwrap_or_default();
        let refused = |why: &str| {
            let message = format!("the disruption budget {name} {why}");
            Failure::new(Code::ResourceExhausted, message)
        };
        if count(&status["observedGeneration"]) < count(&metadata["generation"]) {
            return Err(Failure {
                retry_after: Some(10_000),
                ..refused("is still being processed by the server")
            });
        }
        let allowed = count(&status["disruptionsAllowed"]);
        if allowed <= 0 {
            return Err(refused("does not allow it"));
        }
        self.change(at, json!({"status": {"disruptionsAllowed": allowed - 1}}));
        Ok(())
    }

    /// Deletes an object: a Pod after its grace period, an object with a finalizer later.
    fn end(&mut self, at: usize, grace: Option<u32>) -> Value {
        let object = &self.all[at];
        let own = object["spec"]["terminationGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(30);
        let seconds = match (object["kind"] == "Pod", grace) {
            (false, _) | (true, Some(0)) => 0,
            (true, Some(grace)) => u64::from(grace),
            (true, None) => own,
        };
        let answer = written(object);
        if seconds == 0 && !is_held(object) {
            self.all.remove(at);
            return answer;
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            let end = self.now.whole_seconds() + std::time::Duration::from_secs(seconds);
            self.change(at, json!({"metadata": {"deletionTimestamp": end}}));
        }
        written(&self.all[at])
    }

    fn checked(&self, object: &ObjectRef, precondition: &Precondition) -> Result<usize, Failure> {
        let at = self.find(object)?;
        let metadata = &self.all[at]["metadata"];
        let version = precondition.resource_version.as_deref();
        if metadata["uid"] != precondition.uid.as_str()
            || version.is_some_and(|version| metadata["resourceVersion"] != version)
        {
            let message = format!("{} {} is not as it was seen", object.kind, object.name);
            return Err(Failure::new(Code::Aborted, message));
        }
        Ok(at)
    }
}

fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Whether no budget is asked about a Pod (`canIgnorePDB`).
fn ignores_budgets(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str();
    matches!(phase, Some("Succeeded" | "Failed" | "Pending"))
        || !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a Pod that is not ready goes without a charge: its budget always allows that, or lacks nothing.
fn is_spared(budget: &Value, pod: &Value) -> bool {
    let (status, policy) = (&budget["status"], &budget["spec"]["unhealthyPodEvictionPolicy"]);
    let desired = count(&status["desiredHealthy"]);
    let lacks_nothing = desired > 0 && count(&status["currentHealthy"]) >= desired;
    !conditions::is(pod, "Ready", "True") && (policy == "AlwaysAllow" || lacks_nothing)
}

fn written(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let of = |field: &str| &metadata[field];
    json!({"uid": of("uid"), "resourceVersion": of("resourceVersion"), "generation": of("generation")})
}

fn labels_match(object: &Value, selector: &str) -> bool {
    let selector: LabelSelector = selector.parse().unwrap_or_else(|wrong| panic!("{wrong}"));
    selector.matches(object)
}

fn fields_match(object: &Value, selector: &str) -> bool {
    let selector: FieldSelector = selector.parse().unwrap_or_else(|wrong| panic!("{wrong}"));
    selector.matches(object)
}
