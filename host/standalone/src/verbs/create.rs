//! Creating an object.

use serde_json::{Value, json};

use super::{Call, Written};
use crate::{
    controllers::{budget, deletion, namespaces},
    http::{
        refusal::{Cause, Refusal},
        target::Target,
    },
    kinds::Rules,
    store::Write,
    verbs::admission::{check_place, conform},
};

/// How many generated names are tried before the client gets an error (as in a real API server since 1.30).
const NAME_ATTEMPTS: u32 = 8;
/// The most bytes of `generateName` that are used, so that the name fits into a label (apiserver
/// `maxGeneratedNameLength`).
const GENERATED: usize = 58;

/// Creates the object in the body.
pub(crate) fn create(call: &Call<'_>) -> Result<Written, Refusal> {
    let target = call.target;
    target.check_namespace()?;
    let (mut object, fields) = call.begin_write()?;
    check_name(target, &object)?;
    check_place(target, &mut object)?;
    call.store.write(|write| {
        let name = free_name(write, target, &mut object)?;
        check_kind(write, target, &name)?;
        if let Some(namespace) = &target.namespace {
            namespaces::require(write, namespace, target.subject(&name))?;
        }
        prepare(write, target, &mut object)?;
        let warnings = conform(target, &mut object, None, fields, &write.now())?;
        let key = target.key(&name);
        if write.get(&key).is_some() {
            return Err(Refusal::already_exists(target.subject(&name)));
        }
        let object = deletion::put(write, &key, object);
        Ok(Written { object, warnings })
    })
}

/// Checks that the kind of a new object is still served and not being deleted.
fn check_kind(write: &Write<'_>, target: &Target, name: &str) -> Result<(), Refusal> {
    let kind = write.registry().find(&target.kind.group, &target.kind.plural)?;
    if kind.terminating {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Refusal::forbidden(target.subject(name), why));
    }
    Ok(())
}

/// Refuses an object without a name, and one with the metadata of a stored object.
fn check_name(target: &Target, object: &Value) -> Result<(), Refusal> {
    let metadata = &object["metadata"];
    let has = |field: &str| metadata[field].as_str().is_some_and(|text| !text.is_empty());
    if has("resourceVersion") {
        return Err(Refusal::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if !has("name") && !has("generateName") {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(Refusal::invalid(target.kind.invalid_subject(""), &[cause]));
    }
    Ok(())
}

/// The object's name, or an unused generated one if the object leaves that to the server.
fn free_name(write: &Write<'_>, target: &Target, object: &mut Value) -> Result<String, Refusal> {
    let metadata = &mut object["metadata"];
    if let Some(name) = metadata["name"].as_str().filter(|name| !name.is_empty()) {
        return Ok(name.to_owned());
    }
    let base: String = metadata["generateName"]
        .as_str()
        .unwrap_or_default()
        .chars()
        .take(GENERATED)
        .collect();
    let names = (0..NAME_ATTEMPTS).map(|attempt| format!("{base}{}", write.new_suffix(attempt)));
    let free = names
        .into_iter()
        .find(|name| write.get(&target.key(name)).is_none());
    let name = free.ok_or_else(|| Refusal::already_exists(target.subject(&base)))?;
    metadata["name"] = json!(name);
    Ok(name)
}

/// Sets the fields of a new object that the server decides.
fn prepare(write: &Write<'_>, target: &Target, object: &mut Value) -> Result<(), Refusal> {
    if target.version().status
        && target.kind.rules != Rules::Node
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    match target.kind.rules {
        Rules::Namespace => namespaces::prepare(object),
        Rules::Pod | Rules::Volume => object["status"] = json!({ "phase": "Pending" }),
        Rules::Budget => object["status"] = budget::first(),
        Rules::Attachment => object["status"] = json!({ "attached": false }),
        _ => {}
    }
    let counts = target.kind.rules.counts_generations();
    let (uid, now) = (write.new_uid(), write.now());
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(Refusal::bad_request("metadata is no JSON object"));
    };
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(uid));
    metadata.insert("creationTimestamp".to_owned(), json!(now));
    if counts {
        metadata.insert("generation".to_owned(), json!(1));
    }
    Ok(())
}
