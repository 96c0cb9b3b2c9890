//! The scale of an object: its numbers as a `Scale`, by which the wanted one is changed.
//!
//! As in apiextensions-apiserver (`ScaleREST` in `pkg/registry/customresource/etcd.go`): a change need not name
//! a resourceVersion, and of the `Scale` only the wanted number and the resourceVersion reach the object.

use serde_json::Value;

use super::{
    Call, PatchKind, Written,
    admission::check_identity,
    fields::FieldCheck,
    patch::Patch,
    read,
    update::{Replacement, replace, same_uid},
};
use crate::{
    http::{refusal::Refusal, target::Target},
    kinds::Scale,
    store::Object,
};

/// The type of the bodies that are accepted.
const TYPE: [(&str, &str); 2] = [("apiVersion", "autoscaling/v1"), ("kind", "Scale")];

/// The scale of an object.
pub(crate) fn get(call: &Call<'_>) -> Result<Value, Refusal> {
    let scale = shown(call.target, &read::get(call)?)?;
    if scale["spec"]["replicas"] == Scale::UNSET {
        return Err(Refusal::no_scale(&declared(call.target)?.spec_replicas));
    }
    Ok(scale)
}

/// Takes the wanted number from the `Scale` in the body; without one it is 0. Returns the new scale, and
/// warnings.
pub(crate) fn update(call: &Call<'_>) -> Result<(Value, Vec<String>), Refusal> {
    let target = call.target;
    let (_, name) = target.named()?;
    let (mut scale, fields) = call.begin_write()?;
    let warnings = check(target, &mut scale, fields)?;
    let same = same_uid(&scale);
    change(call, |stored| {
        let met = same.check(&stored.tree());
        met.map_err(|why| Refusal::conflict(target.subject(name), &why))?;
        Ok((scale.clone(), warnings.clone()))
    })
}

/// Patches the `Scale` of an object. Returns the new one, and warnings.
pub(crate) fn patch(call: &Call<'_>, kind: PatchKind) -> Result<(Value, Vec<String>), Refusal> {
    let (patch, fields) = Patch::begin(call, kind)?;
    change(call, |stored| {
        let mut scale = shown(call.target, stored)?;
        patch.apply(&mut scale)?;
        let warnings = check(call.target, &mut scale, fields.clone())?;
        Ok((scale, warnings))
    })
}

fn change(
    call: &Call<'_>,
    wanted: impl Fn(&Object) -> Result<(Value, Vec<String>), Refusal>,
) -> Result<(Value, Vec<String>), Refusal> {
    let target = call.target;
    let (key, _) = target.named()?;
    let Written { object, warnings } = replace(call, &key, |stored, now| {
        let (scale, warnings) = wanted(stored)?;
        let declared = declared(target)?;
        if scale["spec"]["replicas"] == Scale::UNSET {
            let path = &declared.spec_replicas;
            let message = format!("the spec replicas field {path:?} cannot be empty");
            return Err(Refusal::bad_request(message));
        }
        let mut next = served(target, stored);
        declared.put(&scale, &mut next).map_err(Refusal::broken_scale)?;
        let mut made = Replacement::new(target, &key, &stored.tree(), next, FieldCheck::none(), now)?;
        made.warnings = warnings;
        Ok(made)
    })?;
    Ok((shown(target, &object)?, warnings))
}

/// Checks that a value is a `Scale` of this object. Returns warnings about ignored fields.
fn check(target: &Target, scale: &mut Value, fields: FieldCheck) -> Result<Vec<String>, Refusal> {
    let refused = fields.clone();
    let refused = |scale: &Value, why: &str| Err(refused.unreadable(Scale::TYPE, scale, why));
    let Some(all) = scale.as_object_mut() else {
        return refused(scale, "it is no JSON object");
    };
    check_identity(target, all)?;
    for (field, wanted) in TYPE {
        if scale.get(field).is_some_and(|found| found != wanted) {
            return refused(scale, &format!("{field} is not {wanted}"));
        }
    }
    let unknown = Scale::schema().prune(scale);
    if let Some(cause) = Scale::schema().validate(scale, None).first() {
        return refused(scale, &cause.to_string());
    }
    // The schema takes 3.0 for an integer.
    let replicas = &scale["spec"]["replicas"];
    if !replicas.is_null() && !replicas.is_i64() {
        return refused(scale, "spec.replicas is no integer");
    }
    fields.judge(Scale::TYPE, scale, &unknown)
}

fn declared(target: &Target) -> Result<&Scale, Refusal> {
    let scale = target.version().scale.as_ref();
    scale.ok_or_else(|| target.verb_refused())
}

/// The `Scale` of a stored object.
fn shown(target: &Target, object: &Object) -> Result<Value, Refusal> {
    let scale = declared(target)?.of(&served(target, object));
    scale.map_err(Refusal::broken_scale)
}

/// A stored object in the version of the request.
fn served(target: &Target, object: &Object) -> Value {
    let converted = target.kind.in_version(target.version(), object);
    converted.unwrap_or_else(|| object.tree())
}
