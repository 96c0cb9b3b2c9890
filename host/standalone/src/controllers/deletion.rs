//! Deletion: preconditions, grace periods, finalizers, and everything that is deleted with an object (garbage
//! collection by owner, the content of namespaces, the instances of CRDs).
//!
//! A real API server collects garbage later, in the background. Here it is part of the same transaction. So
//! none of it can be lost, and equal requests have equal effects.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use polity_kube_rules::{deletion::is_released, finalizers, time::meta_time};
use serde_json::{Value, json};

use crate::{
    controllers::{
        namespaces,
        owners::{self, OwnerState},
    },
    http::refusal::{Cause, Refusal},
    kinds::{CRD_RESOURCE, set_terminating},
    store::{Draft, Key, Object, Write},
};

/// Keeps a CRD until its instances are gone.
const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Keeps an owner until its blocking dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The grace period of a pod on a node whose spec names none (default of core/v1), in seconds.
const POD_GRACE: i64 = 30;

/// What happens to dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Propagation {
    /// Dependents are deleted too.
    #[default]
    Background,
    /// Dependents are deleted first.
    Foreground,
    /// Dependents stay and lose this owner.
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    pub(crate) propagation: Propagation,
    /// `gracePeriodSeconds`. It is used for pods on nodes only.
    pub(crate) grace: Option<i64>,
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone. This was its last state.
    Gone(Object),
    /// The object goes when its finalizers, its grace period or its content are gone.
    Going(Object),
}

/// Deletes an object, and everything that is deleted with it.
pub(crate) fn delete(write: &mut Write<'_>, key: &Key, object: &Object, how: How) -> Deleted {
    let mut sweep = Sweep::default();
    let gone = sweep.delete(write, key, object, how);
    sweep.settle(write);
    if let Some(gone) = gone {
        return Deleted::Gone(gone);
    }
    match write.get(key).filter(|now| now.uid() == object.uid()) {
        Some(now) => Deleted::Going(now),
        None => Deleted::Gone(object.clone()),
    }
}

/// Stores a changed object. It is removed if nothing keeps it any longer, and collected if its owners are
/// gone.
pub(crate) fn put(write: &mut Write<'_>, key: &Key, object: impl Into<Draft>) -> Object {
    let object = object.into();
    let mut sweep = Sweep::default();
    let has_owners = !object.owners().is_empty();
    let stored = sweep.put(write, key, object);
    if has_owners {
        sweep.collect(write, key);
    }
    sweep.settle(write);
    stored
}

/// The further work of a deletion. It is a queue instead of recursion, because chains of owners can be long.
#[derive(Default)]
struct Sweep {
    removed: VecDeque<(Key, Object)>,
    doomed: VecDeque<(Key, Propagation)>,
}

impl Sweep {
    /// Deletes an object. Returns its last state if it is gone.
    fn delete(&mut self, write: &mut Write<'_>, key: &Key, object: &Object, how: How) -> Option<Object> {
        let before = object.tree();
        let mut value = before.clone();
        let begins = !object.is_deleting();
        let metadata = &mut value["metadata"];
        if begins {
            let grace = grace(key, &before, how.grace);
            metadata["deletionTimestamp"] = json!(write.now_plus(grace));
            metadata["deletionGracePeriodSeconds"] = json!(grace);
            if let Some(generation) = metadata["generation"].as_i64() {
                metadata["generation"] = json!(generation.saturating_add(1));
            }
        } else if let Some((end, grace)) = shortened(metadata, how.grace, write.time()) {
            metadata["deletionTimestamp"] = json!(meta_time(end));
            metadata["deletionGracePeriodSeconds"] = json!(grace);
        }
        if begins {
            self.begin(write, key, &mut value, how.propagation);
        }
        if value == before {
            return None;
        }
        if begins && is_free_to_go(write, key, &value) {
            return Some(self.remove(write, key, before));
        }
        let stored = self.put(write, key, value);
        self.after_begin(write, key, begins);
        write.get(key).is_none().then_some(stored)
    }

    /// Marks an object whose deletion begins.
    fn begin(&mut self, write: &mut Write<'_>, key: &Key, value: &mut Value, propagation: Propagation) {
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        match propagation {
            Propagation::Orphan => owners::release(write, &uid),
            Propagation::Foreground if !write.owned_by(&uid).is_empty() => finalizers::add(value, FOREGROUND),
            Propagation::Foreground | Propagation::Background => {}
        }
        match &*key.resource {
            namespaces::RESOURCE => value["status"]["phase"] = json!("Terminating"),
            CRD_RESOURCE => await_instances(write, &key.name, value),
            _ => {}
        }
    }

    /// Queues what follows once the object is marked.
    fn after_begin(&mut self, write: &mut Write<'_>, key: &Key, begins: bool) {
        let Some(object) = write.get(key).filter(|_| begins) else {
            return;
        };
        if &*key.resource == namespaces::RESOURCE {
            let content = write.content_of(&key.name);
            self.doomed
                .extend(content.into_iter().map(|key| (key, Propagation::Background)));
        }
        let marked = object.tree();
        if finalizers::has(&marked, CRD_FINALIZER) {
            let instances = write.all_of(&key.name, None);
            self.doomed.extend(
                instances
                    .into_iter()
                    .map(|(key, _)| (key, Propagation::Background)),
            );
        }
        if finalizers::has(&marked, FOREGROUND) {
            for (dependent, _) in write.owned_by(object.uid()) {
                self.collect(write, &dependent);
            }
            self.finish_foreground(write, object.uid());
        }
    }

    /// Stores an object, or removes it if nothing keeps it any longer.
    fn put(&mut self, write: &mut Write<'_>, key: &Key, object: impl Into<Draft>) -> Object {
        let object = object.into();
        if is_free_to_go(write, key, &json!({"metadata": object.at("metadata")})) {
            self.remove(write, key, object)
        } else {
            write.put(key, object)
        }
    }

    fn remove(&mut self, write: &mut Write<'_>, key: &Key, object: impl Into<Draft>) -> Object {
        let removed = write.remove(key, object);
        self.removed.push_back((key.clone(), removed.clone()));
        removed
    }

    /// Works until the queue is empty.
    fn settle(&mut self, write: &mut Write<'_>) {
        loop {
            if let Some((key, object)) = self.removed.pop_front() {
                self.after_removal(write, &key, &object);
            } else if let Some((key, propagation)) = self.doomed.pop_front() {
                if let Some(object) = write.get(&key) {
                    self.delete(
                        write,
                        &key,
                        &object,
                        How {
                            propagation,
                            grace: None,
                        },
                    );
                }
            } else {
                return;
            }
        }
    }

    fn after_removal(&mut self, write: &mut Write<'_>, key: &Key, object: &Object) {
        for (dependent, _) in write.owned_by(object.uid()) {
            self.collect(write, &dependent);
        }
        for owner in object.owners() {
            self.finish_foreground(write, &owner);
        }
        if !key.namespace.is_empty() && write.count_in(&key.namespace) == 0 {
            self.reconsider(write, &namespaces::key(&key.namespace));
        }
        let crd = Key {
            resource: CRD_RESOURCE.into(),
            namespace: "".into(),
            name: key.resource.clone(),
        };
        let waits = |crd: &Object| crd.is_deleting() && write.is_empty(&key.resource);
        if let Some(object) = write.get(&crd).filter(waits) {
            let mut value = object.tree();
            await_instances(write, &crd.name, &mut value);
            self.put(write, &crd, value);
        }
    }

    /// Deletes a dependent whose owners are all gone or wait for it. Otherwise it drops the references to
    /// those owners (kube-controller-manager, `attemptToDeleteItem` of the garbage collector).
    fn collect(&mut self, write: &mut Write<'_>, key: &Key) {
        let Some(object) = write.get(key).filter(|object| !object.is_deleting()) else {
            return;
        };
        let owners = match object.at("metadata.ownerReferences") {
            Value::Array(owners) => owners,
            _ => Vec::new(),
        };
        let owners = owners.into_iter();
        let owners: Vec<(OwnerState, Value)> = owners
            .map(|owner| (owners::state(write, key, &owner), owner))
            .collect();
        let any = |wanted| owners.iter().any(|(state, _)| *state == wanted);
        let is_awaited = any(OwnerState::Waits);
        if !is_awaited && !any(OwnerState::Gone) {
            return;
        }
        if !any(OwnerState::MayExist) {
            let propagation = if is_awaited {
                Propagation::Foreground
            } else {
                Propagation::Background
            };
            self.doomed.push_back((key.clone(), propagation));
            return;
        }
        let kept = owners
            .into_iter()
            .filter(|(state, _)| *state == OwnerState::MayExist);
        let mut value = object.tree();
        value["metadata"]["ownerReferences"] = kept.map(|(_, owner)| owner).collect();
        self.put(write, key, value);
    }

    /// Releases an owner whose blocking dependents are gone.
    fn finish_foreground(&mut self, write: &mut Write<'_>, uid: &str) {
        let Some((key, owner)) = write.with_uid(uid) else {
            return;
        };
        if !owner.is_deleting() || !finalizers::has(&owner.tree(), FOREGROUND) {
            return;
        }
        if !write
            .owned_by(uid)
            .iter()
            .any(|(_, dependent)| owners::blocks(&dependent.tree(), uid))
        {
            self.drop_finalizer(write, &key, FOREGROUND);
        }
    }

    fn drop_finalizer(&mut self, write: &mut Write<'_>, key: &Key, finalizer: &str) {
        let Some(object) = write.get(key) else { return };
        let before = object.tree();
        let mut value = before.clone();
        finalizers::remove(&mut value, finalizer);
        if value != before {
            self.put(write, key, value);
        }
    }

    /// Removes an object that waited for others, if nothing else keeps it.
    fn reconsider(&mut self, write: &mut Write<'_>, key: &Key) {
        let Some(object) = write.get(key) else { return };
        let value = object.tree();
        if is_free_to_go(write, key, &value) {
            self.put(write, key, value);
        }
    }
}

/// Whether nothing keeps a deleting object. A namespace exists until it is empty: here nobody removes the
/// finalizer from its spec.
fn is_free_to_go(write: &Write<'_>, key: &Key, value: &Value) -> bool {
    is_released(value) && (&*key.resource != namespaces::RESOURCE || write.count_in(&key.name) == 0)
}

/// The grace period of an object in seconds. For a pod on a node it is that of its spec, for anything else
/// zero.
fn grace(key: &Key, value: &Value, asked: Option<i64>) -> i64 {
    if &*key.resource != "pods" {
        return 0;
    }
    let on_node = value["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    let ended = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !on_node || ended {
        return 0;
    }
    let own = value["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(POD_GRACE);
    at_least_nothing(asked.unwrap_or(own))
}

/// A grace period below zero counts as one second (apiserver `BeforeDelete`).
fn at_least_nothing(grace: i64) -> i64 {
    if grace < 0 { 1 } else { grace }
}

/// The new end and grace period of an object that is already being deleted; `None` if they stay. A deletion
/// without a period, or with a longer one, changes nothing. A shorter period counts from the first deletion
/// and never ends in the past.
fn shortened(metadata: &Value, asked: Option<i64>, now: Timestamp) -> Option<(Timestamp, i64)> {
    let current = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let asked = at_least_nothing(asked?);
    if asked >= current {
        return None;
    }
    let end: Timestamp = metadata["deletionTimestamp"].as_str()?.parse().ok()?;
    let end = end
        .checked_sub(SignedDuration::from_secs(current - asked))
        .unwrap_or(now);
    Some(if end < now {
        (now, asked.min(1))
    } else {
        (end, asked)
    })
}

/// Keeps a CRD that is being deleted as long as it has instances, and says so in its status.
fn await_instances(write: &Write<'_>, resource: &str, crd: &mut Value) {
    let has_instances = !write.is_empty(resource);
    set_terminating(crd, has_instances, &write.now());
    if has_instances {
        finalizers::add(crd, CRD_FINALIZER);
    } else {
        finalizers::remove(crd, CRD_FINALIZER);
    }
}

/// The preconditions of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl Preconditions {
    /// The error if an object does not meet them.
    pub(crate) fn check(&self, object: &Value) -> Result<(), String> {
        let demands = [
            ("UID", &self.uid, &object["metadata"]["uid"]),
            (
                "ResourceVersion",
                &self.resource_version,
                &object["metadata"]["resourceVersion"],
            ),
        ];
        for (what, wanted, found) in demands {
            let found = found.as_str().unwrap_or_default();
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
                return Err(format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
                ));
            }
        }
        Ok(())
    }
}

impl Propagation {
    /// The propagation of this name in the API.
    pub(crate) fn named(name: &str) -> Result<Self, Refusal> {
        match name {
            "Background" => Ok(Self::Background),
            "Foreground" => Ok(Self::Foreground),
            "Orphan" => Ok(Self::Orphan),
            other => {
                let known = ["\"Foreground\"", "\"Background\"", "\"Orphan\"", "\"nil\""].map(str::to_owned);
                let cause = Cause::unsupported("propagationPolicy", &json!(other), &known);
                Err(Refusal::delete_option(cause))
            }
        }
    }
}
