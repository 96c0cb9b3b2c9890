//! Deletes an object, or all selected objects.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, selection::Selection};
use crate::{
    controllers::{
        deletion::{self, Deleted, How, Preconditions, Propagation},
        namespaces,
    },
    http::{
        query::Query,
        refusal::{Cause, Refusal},
        target::Part,
    },
    kinds::Rules,
    store::Object,
};

/// The answer to a deletion.
pub(crate) enum Answer {
    /// The object still exists and is being deleted.
    Object(Object),
    /// The object is gone. A `Status` says so.
    Status(Value),
}

/// Deletes one object.
pub(crate) fn delete(call: &Call<'_>) -> Result<Answer, Refusal> {
    let target = call.target;
    let (key, name) = target.named()?;
    if target.part != Part::Whole {
        return Err(target.verb_refused());
    }
    let (how, preconditions) = options(call)?;
    if target.kind.rules == Rules::Namespace {
        namespaces::check_deletable(name)?;
    }
    call.store.write(|write| {
        let object = write
            .get(&key)
            .ok_or_else(|| Refusal::not_found(target.subject(name)))?;
        let conflict = |why: String| Refusal::conflict(target.subject(name), &why);
        preconditions.check(&object.tree()).map_err(conflict)?;
        Ok(match deletion::delete(write, &key, &object, how) {
            Deleted::Going(object) => Answer::Object(object),
            Deleted::Gone(object) => Answer::Status(success(call, name, object.uid())),
        })
    })
}

/// Deletes all selected objects in one transaction. Returns them in their last state.
pub(crate) fn delete_collection(call: &Call<'_>) -> Result<(Vec<Object>, u64), Refusal> {
    call.target.check_namespace()?;
    let (how, preconditions) = options(call)?;
    let selection = Selection::of(call.target, call.query)?;
    call.store.write(|write| {
        let mut deleted = Vec::new();
        for (key, _) in write.all_of(&call.target.kind.storage, selection.namespace.as_deref()) {
            // An object that was garbage of one deleted before is already gone.
            let Some(object) = write.get(&key).filter(|object| selection.matches(object)) else {
                continue;
            };
            if call.target.kind.rules == Rules::Namespace {
                namespaces::check_deletable(&key.name)?;
            }
            let conflict = |why: String| Refusal::conflict(call.target.subject(&key.name), &why);
            preconditions.check(&object.tree()).map_err(conflict)?;
            deleted.push(match deletion::delete(write, &key, &object, how) {
                Deleted::Going(object) | Deleted::Gone(object) => object,
            });
        }
        Ok((deleted, write.revision()))
    })
}

/// The options of a deletion: from the body, or without a body from the query.
fn options(call: &Call<'_>) -> Result<(How, Preconditions), Refusal> {
    call.query.refuse_dry_run()?;
    if call.body.is_empty() {
        return DeleteOptions::from_query(call.query)?.read();
    }
    let options = DeleteOptions::parse(call.json()?)?;
    // Every apiVersion is accepted, as in a real API server: clients send that of the object.
    let other = |kind: &&str| !["", "DeleteOptions"].contains(kind);
    if let Some(kind) = options.kind.as_deref().filter(other) {
        let version = options.api_version.as_deref().unwrap_or("v1");
        let why = format!("no kind {kind:?} is registered for version {version:?}: expected DeleteOptions");
        return Err(Refusal::bad_request(why));
    }
    options.read()
}

/// The options of a deletion (meta/v1).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeleteOptions {
    api_version: Option<String>,
    kind: Option<String>,
    dry_run: Option<Vec<String>>,
    grace_period_seconds: Option<i64>,
    orphan_dependents: Option<bool>,
    preconditions: Option<Demands>,
    propagation_policy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Demands {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// Parses the options. Null counts as none.
    pub(super) fn parse(body: Value) -> Result<Self, Refusal> {
        if !(body.is_object() || body.is_null()) {
            return Err(Refusal::bad_request("DeleteOptions are a JSON object"));
        }
        let options: Option<Self> = serde_json::from_value(body)
            .map_err(|error| Refusal::bad_request(format!("DeleteOptions cannot be read: {error}")))?;
        Ok(options.unwrap_or_default())
    }

    fn from_query(query: &Query) -> Result<Self, Refusal> {
        let grace = query.number("gracePeriodSeconds")?;
        Ok(Self {
            grace_period_seconds: grace.and_then(|seconds| i64::try_from(seconds).ok()),
            orphan_dependents: query.flag("orphanDependents"),
            propagation_policy: query.get("propagationPolicy").map(str::to_owned),
            ..Self::default()
        })
    }

    /// The meaning of the options; 422 if they contradict each other (apimachinery `ValidateDeleteOptions`).
    pub(super) fn read(self) -> Result<(How, Preconditions), Refusal> {
        if self.dry_run.is_some_and(|runs| !runs.is_empty()) {
            return Err(Refusal::not_implemented("dryRun"));
        }
        let propagation = match (self.propagation_policy.as_deref(), self.orphan_dependents) {
            (Some(policy), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                let cause = Cause::invalid("propagationPolicy", &json!(policy), why);
                return Err(Refusal::delete_option(cause));
            }
            (Some(policy), None) => Propagation::named(policy)?,
            (None, Some(true)) => Propagation::Orphan,
            (None, _) => Propagation::default(),
        };
        let how = How {
            propagation,
            grace: self.grace_period_seconds,
        };
        let Demands {
            uid,
            resource_version,
        } = self.preconditions.unwrap_or_default();
        Ok((
            how,
            Preconditions {
                uid,
                resource_version,
            },
        ))
    }
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
