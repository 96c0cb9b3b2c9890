//! Evictions: deletions of pods that their disruption budget must allow (policy/v1 `Eviction`).
//!
//! The budget is charged and the pod deleted in one transaction. A real API server charges the budget first
//! and may then find that a precondition fails; here nothing changes in that case.

use polity_kube_rules::{conditions, deletion::is_deleting};
use serde_json::{Value, json};

use super::{Call, delete::DeleteOptions};
use crate::{
    controllers::{
        budget,
        deletion::{self, Preconditions},
    },
    http::refusal::{Refusal, Subject},
    store::{Key, Object, Write},
};

/// The versions of `Eviction` that are accepted. They are alike.
const VERSIONS: [&str; 2] = ["policy/v1", "policy/v1beta1"];

/// Evicts the pod that the request names. Returns a `Status`, and warnings.
pub(crate) fn evict(call: &Call<'_>) -> Result<(Value, Vec<String>), Refusal> {
    let target = call.target;
    let (key, name) = target.named()?;
    let (mut eviction, fields) = call.begin_write()?;
    check(&eviction, &key)?;
    let warnings = fields.judge(("Eviction", "v1"), &eviction, &[])?;
    let (how, preconditions) = DeleteOptions::parse(eviction["deleteOptions"].take())?.read()?;
    call.store.write(|write| {
        let pod = write
            .get(&key)
            .ok_or_else(|| Refusal::not_found(target.subject(name)))?;
        let seen = pod.tree();
        if !is_lost_anyway(&seen) {
            charge(write, &key, (&pod, &seen))?;
        }
        let conflict = |why: String| Refusal::conflict(subject(name), &why);
        demand(&preconditions, &seen).map_err(conflict)?;
        let pod = mark(write, &key, pod);
        deletion::delete(write, &key, &pod, how);
        let status =
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
        Ok((status, warnings))
    })
}

/// The object of a conflict. It names the kind, where other refusals name the resource.
fn subject(name: &str) -> Subject<'_> {
    Subject {
        group: "",
        kind: "Pod",
        name,
    }
}

/// Refuses a body that is no eviction of this pod. A body without a kind counts as an eviction.
fn check(eviction: &Value, key: &Key) -> Result<(), Refusal> {
    if !eviction.is_object() {
        return Err(Refusal::bad_request("the body is no JSON object"));
    }
    let (version, kind) = (&eviction["apiVersion"], &eviction["kind"]);
    let is_known = version.is_null() || VERSIONS.iter().any(|known| version == known);
    if !is_known || !(kind.is_null() || kind == "Eviction") {
        let message = format!("{kind} in version {version} cannot be handled as a Eviction");
        return Err(Refusal::bad_request(message));
    }
    let text = |field: &str| eviction["metadata"][field].as_str().unwrap_or_default();
    if text("name") != &*key.name {
        return Err(Refusal::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let namespace = text("namespace");
    if !namespace.is_empty() && namespace != &*key.namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// The error if a pod does not meet the preconditions, in the words of an eviction. An empty precondition
/// demands nothing.
fn demand(preconditions: &Preconditions, pod: &Value) -> Result<(), String> {
    let Preconditions {
        uid,
        resource_version,
    } = preconditions;
    let demands = [
        ("UID", "uid", uid, "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", resource_version, "modified"),
    ];
    for (what, field, wanted, fate) in demands {
        let found = pod["metadata"][field].as_str().unwrap_or_default();
        let wanted = wanted.as_deref().filter(|wanted| !wanted.is_empty());
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            return Err(format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
                 might have been {fate}"
            ));
        }
    }
    Ok(())
}

/// Whether a pod does not serve, or no longer: then its budget is not asked (kube-apiserver, `canIgnorePDB`).
fn is_lost_anyway(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str();
    matches!(phase, Some("Succeeded" | "Failed" | "Pending")) || is_deleting(pod)
}

/// Charges the pod's budget, if it has one.
fn charge(write: &mut Write<'_>, key: &Key, (pod, seen): (&Object, &Value)) -> Result<(), Refusal> {
    let Some((at, stored)) = budget::the_one_for(write, key, pod)? else {
        return Ok(());
    };
    let budget = stored.tree();
    if !budget::is_spared(&budget, seen) {
        let charged = budget::charge(&at.name, &budget, &key.name, write.time())?;
        write.put(&at, charged);
    }
    Ok(())
}

/// Sets the condition of the pod that says why it goes.
fn mark(write: &mut Write<'_>, key: &Key, pod: Object) -> Object {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": write.now(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    let before = pod.tree();
    let mut value = before.clone();
    conditions::set(&mut value["status"], condition);
    if value == before {
        return pod;
    }
    write.put(key, value)
}
