//! Replaces an object. Also the code that update and patch share.

use std::sync::Arc;

use polity_kube_rules::{deletion::is_deleting, finalizers, time::meta_time};
use serde_json::{Value, json};

use super::{Call, Written};
use crate::{
    controllers::deletion::{self, Preconditions},
    http::{
        refusal::{Cause, Refusal},
        target::{Part, Target},
    },
    kinds::Rules,
    store::{Draft, Key, Object},
    verbs::{
        admission::{check_place, conform},
        fields::FieldCheck,
    },
};

/// The metadata that only the server changes.
const SERVER_OWNED: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
];

/// Replaces an object, or its status, with the body.
pub(crate) fn update(call: &Call<'_>) -> Result<Written, Refusal> {
    let target = call.target;
    let (key, name) = target.named()?;
    let (mut object, fields) = call.begin_write()?;
    check_place(target, &mut object)?;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if version.is_empty() && target.kind.rules.wants_version() {
        let cause = Cause::invalid(
            "metadata.resourceVersion",
            &json!(0),
            "must be specified for an update",
        );
        return Err(Refusal::invalid(target.kind.invalid_subject(name), &[cause]));
    }
    let same = same_uid(&object);
    replace(call, &key, |stored, now| {
        let stored = stored.tree();
        same.check(&stored)
            .map_err(|why| Refusal::conflict(target.subject(name), &why))?;
        Replacement::new(target, &key, &stored, object.clone(), fields.clone(), now)
    })
}

/// In an update a uid is a precondition. In a patch it is an attempt to change the uid.
pub(super) fn same_uid(body: &Value) -> Preconditions {
    let uid = body["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
    Preconditions {
        uid: uid.map(str::to_owned),
        resource_version: None,
    }
}

/// Puts an object in place of the one with this key. `work_out` makes it from the stored one and the time.
///
/// It is worked out, its text included, before the store is held, because a large object takes milliseconds and all other
/// writes would wait. If the stored object has changed meanwhile, it is worked out again.
pub(super) fn replace(
    call: &Call<'_>,
    key: &Key,
    work_out: impl Fn(&Object, &str) -> Result<Replacement, Refusal>,
) -> Result<Written, Refusal> {
    let seen = call.store.read().get(key).cloned();
    let ahead = seen.map(|seen| (work_out(&seen, &meta_time(call.store.now())), seen));
    call.store.write(|write| {
        let stored = write
            .get(key)
            .ok_or_else(|| Refusal::not_found(call.target.subject(&key.name)))?;
        let Replacement { next, warnings } = match ahead {
            Some((worked_out, seen)) if Arc::ptr_eq(&seen, &stored) => worked_out?,
            _ => work_out(&stored, &write.now())?,
        };
        let object = match next {
            Some(next) => deletion::put(write, key, next),
            None => stored,
        };
        Ok(Written { object, warnings })
    })
}

/// What becomes of a stored object.
pub(super) struct Replacement {
    /// The object to store; `None` if nothing changes.
    next: Option<Draft>,
    /// Warnings for the `Warning` header.
    pub(super) warnings: Vec<String>,
}

impl Replacement {
    /// The wanted object, which is in the version of the request, in place of the stored one.
    pub(super) fn new(
        target: &Target,
        key: &Key,
        stored: &Value,
        mut wanted: Value,
        fields: FieldCheck,
        now: &str,
    ) -> Result<Self, Refusal> {
        check_version(target, key, stored, &wanted)?;
        check_metadata(target, key, stored, &wanted)?;
        target.kind.to_storage(&mut wanted);
        let mut next = combine(target, stored, wanted);
        let warnings = conform(target, &mut next, Some(stored), fields, now)?;
        if next == *stored {
            return Ok(Replacement { next: None, warnings });
        }
        check_change(target, key, stored, &next)?;
        if target.part != Part::Status
            && target.kind.rules.counts_generations()
            && content_differs(target, stored, &next)
        {
            let generation = stored["metadata"]["generation"].as_i64().unwrap_or(0);
            next["metadata"]["generation"] = json!(generation.saturating_add(1));
        }
        Ok(Replacement {
            next: Some(next.into()),
            warnings,
        })
    }
}

/// Checks the resourceVersion of the body, which is a precondition.
fn check_version(target: &Target, key: &Key, stored: &Value, object: &Value) -> Result<(), Refusal> {
    let wanted = object["metadata"]["resourceVersion"]
        .as_str()
        .filter(|version| !version.is_empty());
    let current = stored["metadata"]["resourceVersion"].as_str();
    if wanted.is_some_and(|wanted| Some(wanted) != current) {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Refusal::conflict(target.subject(&key.name), why));
    }
    Ok(())
}

/// Checks metadata that never changes once it is set. A missing uid or grace period is taken from the stored
/// object, and so is the time of a deletion that has begun (apiserver `BeforeUpdate`). A change of the status
/// never changes the deletion.
fn check_metadata(target: &Target, key: &Key, stored: &Value, object: &Value) -> Result<(), Refusal> {
    let (old, new) = (&stored["metadata"], &object["metadata"]);
    let whole = target.part == Part::Whole;
    let grace = "deletionGracePeriodSeconds";
    let changes = [
        (
            "uid",
            new["uid"].as_str().is_some_and(|uid| !uid.is_empty()) && new["uid"] != old["uid"],
        ),
        (
            "deletionTimestamp",
            whole && !new["deletionTimestamp"].is_null() && !is_deleting(stored),
        ),
        (grace, whole && !new[grace].is_null() && new[grace] != old[grace]),
    ];
    let changed = changes.iter().filter(|(_, changed)| *changed);
    let causes: Vec<Cause> = changed
        .map(|(field, _)| Cause::invalid(&format!("metadata.{field}"), &new[*field], "field is immutable"))
        .collect();
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(target.kind.invalid_subject(&key.name), &causes))
}

/// The stored object with the part of `object` that this request may change.
fn combine(target: &Target, stored: &Value, mut object: Value) -> Value {
    if target.part == Part::Status {
        return with_status(stored, object);
    }
    if target.version().status {
        take(&mut object, "status", stored.get("status").cloned());
    }
    let (old, new) = (&stored["metadata"], &mut object["metadata"]);
    for field in SERVER_OWNED.into_iter().chain(["resourceVersion"]) {
        take(new, field, old.get(field).cloned());
    }
    object
}

/// The stored object with the status of `object`. If nothing else differs, which is usual, no copy is made.
fn with_status(stored: &Value, mut object: Value) -> Value {
    fn rest(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        object
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(field, _)| *field != "status")
    }
    if rest(stored).eq(rest(&object)) {
        return object;
    }
    let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
    let mut next = stored.clone();
    take(&mut next, "status", status);
    next
}

fn take(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
}

/// Refuses changes of immutable fields.
fn check_change(target: &Target, key: &Key, stored: &Value, next: &Value) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    if is_deleting(stored) {
        let known: Vec<&str> = finalizers::of(stored).collect();
        let added: Vec<&str> = finalizers::of(next)
            .filter(|finalizer| !known.contains(finalizer))
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    causes.extend(immutable_changes(target, stored, next));
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(target.kind.invalid_subject(&key.name), &causes))
}

fn immutable_changes(target: &Target, stored: &Value, next: &Value) -> Vec<Cause> {
    let changed = |field: &&str| stored.pointer(field) != next.pointer(field);
    let frozen: &[&str] = match target.kind.rules {
        Rules::Crd => &[
            "/spec/group",
            "/spec/scope",
            "/spec/names/plural",
            "/spec/names/kind",
        ],
        Rules::Secret => &["/type"],
        _ => &[],
    };
    if target.kind.rules == Rules::Attachment && stored["spec"] != next["spec"] {
        return vec![Cause::invalid("spec", &next["spec"], "field is immutable")];
    }
    let mut causes: Vec<Cause> = frozen
        .iter()
        .filter(|field| changed(field))
        .map(|field| Cause::forbidden(&field[1..].replace('/', "."), "field is immutable"))
        .collect();
    if stored["immutable"] == true && target.kind.group.is_empty() {
        let contents = ["/immutable", "/data", "/binaryData"].into_iter().filter(changed);
        causes.extend(
            contents.map(|field| Cause::forbidden(&field[1..], "field is immutable when `immutable` is set")),
        );
    }
    causes
}

/// Whether anything differs besides metadata, and besides the status if that is a subresource.
fn content_differs(target: &Target, stored: &Value, next: &Value) -> bool {
    let counts = |field: &str| field != "metadata" && (field != "status" || !target.version().status);
    let (Some(old), Some(new)) = (stored.as_object(), next.as_object()) else {
        return true;
    };
    let changed = new
        .iter()
        .any(|(field, value)| counts(field) && old.get(field) != Some(value));
    changed || old.keys().any(|field| counts(field) && !new.contains_key(field))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{
        http::path::{self, Route},
        http::query::Query,
        store::Store,
        verbs::{PatchKind, create, patch},
    };

    /// Does something with a request for the ConfigMap `default/a`, or for all of them.
    fn with_call<T>(store: &Store, path: &str, body: &Value, work: impl FnOnce(&Call<'_>) -> T) -> T {
        let registry = store.read().registry.clone();
        let Ok(Route::Resource(location)) = path::parse(path) else {
            panic!("{path} is a path of objects");
        };
        let target = Target::find(&registry, location).unwrap_or_else(|refusal| panic!("{refusal}"));
        work(&Call {
            store,
            target: &target,
            query: &Query::parse(""),
            body: &body.to_string().into(),
        })
    }

    #[test]
    fn a_replacement_is_worked_out_again_if_the_object_changed_meanwhile() {
        let all = "/api/v1/namespaces/default/configmaps";
        let one = "/api/v1/namespaces/default/configmaps/a";
        let store = Store::in_memory(std::sync::Arc::new(|| std::time::UNIX_EPOCH), [0; 16]);
        let made = json!({"metadata": {"name": "a"}, "data": {"is": "made"}});
        assert!(with_call(&store, all, &made, create).is_ok());
        for (meanwhile, times) in [(false, 1), (true, 2)] {
            let looks = Cell::new(0);
            let written = with_call(&store, one, &json!({}), |call| {
                let (key, _) = call.target.named()?;
                let (_, fields) = call.begin_write()?;
                replace(call, &key, |stored, now| {
                    looks.set(looks.get() + 1);
                    // The store is not held, so others can write.
                    if meanwhile && looks.get() == 1 {
                        let other = json!({"data": {"other": "stands"}});
                        let other = with_call(&store, one, &other, |call| patch(call, PatchKind::Merge));
                        assert!(other.is_ok());
                    }
                    let mut next = stored.tree();
                    next["data"]["looks"] = json!(looks.get().to_string());
                    Replacement::new(call.target, &key, &stored.tree(), next, fields.clone(), now)
                })
            });
            let written = written.unwrap_or_else(|refusal| panic!("{refusal}"));
            assert_eq!(looks.get(), times);
            assert_eq!(written.object.at("data.looks"), json!(times.to_string()));
            assert_eq!(written.object.at("data.other") == json!("stands"), meanwhile);
        }
    }
}
