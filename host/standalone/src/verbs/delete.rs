//! Deleting an object, or all that are selected.

use serde_json::{Value, json};

use super::{Call, read::selection};
use crate::{
    deletion::{self, Deleted, How, Preconditions, Propagation},
    kinds::Rules,
    namespaces,
    refusal::Refusal,
    store::Object,
    target::Part,
};

/// What a deletion is answered with.
pub(crate) enum Answer {
    /// The object is still there, and on its way out.
    Object(Object),
    /// The object is gone: a `Status` that says so.
    Status(Value),
}

/// Deletes one object.
pub(crate) fn delete(call: &Call<'_>) -> Result<Answer, Refusal> {
    let target = call.target;
    let (key, name) = target.named()?;
    if target.part != Part::Whole {
        return Err(target.verb_refused());
    }
    let (how, preconditions) = body_options(call)?;
    if target.kind.rules == Rules::Namespace {
        namespaces::check_deletable(name)?;
    }
    call.store.write(|write| {
        let object = write
            .get(&key)
            .ok_or_else(|| Refusal::not_found(target.subject(name)))?;
        let conflict = |why: String| Refusal::conflict(target.subject(name), &why);
        preconditions.check(&object.value).map_err(conflict)?;
        Ok(match deletion::delete(write, &key, &object, how) {
            Deleted::Going(object) => Answer::Object(object),
            Deleted::Gone(object) => Answer::Status(success(call, name, object.uid())),
        })
    })
}

/// Deletes what the selectors select, in one transaction; answers the objects as they were left.
pub(crate) fn delete_collection(call: &Call<'_>) -> Result<(Vec<Object>, u64), Refusal> {
    let (how, preconditions) = body_options(call)?;
    let selection = selection(call.target, call.query)?;
    call.store.write(|write| {
        let mut deleted = Vec::new();
        for (key, _) in write.all_of(&call.target.kind.storage, selection.namespace.as_deref()) {
            // What was garbage of one deleted before is gone by now.
            let Some(object) = write.get(&key).filter(|object| selection.matches(&object.value)) else {
                continue;
            };
            if call.target.kind.rules == Rules::Namespace {
                namespaces::check_deletable(&key.name)?;
            }
            let conflict = |why: String| Refusal::conflict(call.target.subject(&key.name), &why);
            preconditions.check(&object.value).map_err(conflict)?;
            deleted.push(match deletion::delete(write, &key, &object, how) {
                Deleted::Going(object) | Deleted::Gone(object) => object,
            });
        }
        Ok((deleted, write.revision()))
    })
}

/// `DeleteOptions`, from the body or else from the query.
fn body_options(call: &Call<'_>) -> Result<(How, Preconditions), Refusal> {
    let body = if call.body.is_empty() {
        Value::Null
    } else {
        call.json()?
    };
    options(call, &body)
}

/// `DeleteOptions`, or else what the query says.
pub(super) fn options(call: &Call<'_>, body: &Value) -> Result<(How, Preconditions), Refusal> {
    call.query.refuse_dry_run()?;
    if body["dryRun"].as_array().is_some_and(|runs| !runs.is_empty()) {
        return Err(Refusal::not_implemented("dryRun"));
    }
    let policy = body["propagationPolicy"]
        .as_str()
        .or(call.query.get("propagationPolicy"));
    let orphan = body["orphanDependents"]
        .as_bool()
        .or(call.query.flag("orphanDependents"));
    let propagation = match (policy, orphan) {
        (Some(policy), _) => Propagation::named(policy)?,
        (None, Some(true)) => Propagation::Orphan,
        (None, _) => Propagation::default(),
    };
    let grace = call
        .query
        .number("gracePeriodSeconds")?
        .and_then(|seconds| i64::try_from(seconds).ok());
    let grace = body["gracePeriodSeconds"].as_i64().or(grace);
    let text = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
    let preconditions = Preconditions {
        uid: text("uid"),
        resource_version: text("resourceVersion"),
    };
    Ok((How { propagation, grace }, preconditions))
}

fn success(call: &Call<'_>, name: &str, uid: &str) -> Value {
    let kind = &call.target.kind;
    let mut details = json!({ "name": name, "kind": kind.plural, "uid": uid });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}
