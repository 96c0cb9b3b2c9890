//! Checks whether an act may be performed, and whether it was performed before.

use std::sync::Arc;

use polity_kube_rules::text;
use serde_json::{Value, json};

use crate::binding::{Binding, KindGrant};
use crate::catalogue::OperationEffect;
use crate::contract::{
    Act, Answer, CloudAct, Code, Eviction, Failure, ObjectDelete, ObjectPatch, ObjectRef, Request,
    Resolution, Role,
};
use crate::entry::PendingEntry;
use crate::grants::{self, MissingGrant, Refusal};
use crate::key::ObjectKey;
use crate::object::ResourceVersion;
use crate::pending::Pending;
use crate::reconcile::context::Context;
use crate::reconcile::frame::primary_scope;
use crate::reconcile::publishing::has_conditions;
use crate::reconcile::work::Fate;
use crate::shared::guards::Guard;
use crate::worker::Item;

/// Whether an act is granted, and whether the primary can hold its entry and still holds the finalizer that must
/// protect it.
pub(super) fn check_act(act: &Act, role: Role, context: &Context<'_>) -> Result<(), Refusal> {
    let primary = context.frame.snapshot.as_ref();
    let grant = grants::check_act(&context.frame.binding, role, primary, act)?;
    if let Act::Patch(act) = act {
        leaves_host_conditions(act, context)?;
    }
    let on = match act {
        Act::Patch(act) => Some((&act.object, &act.precondition.uid)),
        Act::Delete(act) => Some((&act.object, &act.precondition.uid)),
        Act::Evict(act) => Some((&act.object, &act.precondition.uid)),
        Act::Cloud(_) | Act::Create(_) | Act::Mint(_) | Act::Revoke(_) => None,
    };
    if let (Some(grant), Some((object, uid))) = (grant, on) {
        check_relation(&grant, object, uid, context)?;
    }
    check_primary(act, context)?;
    Ok(check_finalizer(context)?)
}

/// Whether the object of an act has the relation to the primary that the grant requires.
fn check_relation(
    grant: &KindGrant,
    object: &ObjectRef,
    uid: &str,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if grant.relation.is_none() {
        return Ok(());
    }
    let (kind, name) = (&object.kind.kind, &object.name);
    // An object that is not in the cache, or has another uid by now, may have any relation.
    let Some(other) = context.view.cache.newest(&object.kind, &ObjectKey::from(object)) else {
        let message =
            format!("{kind} {name}: its relation to the primary is not known; ask for the object first");
        return Err(Failure::new(Code::Unavailable, message).into());
    };
    if other.uid() != uid {
        let message = format!("{kind} {name} has another uid than {uid}");
        return Err(Failure::new(Code::Aborted, message).into());
    }
    Ok(grants::check_relation(
        grant,
        context.frame.snapshot.as_ref(),
        other,
    )?)
}

/// Whether a patch of another object keeps the conditions of hosts. A patch replaces a whole list, so it must contain
/// them. Returns the version that the patch was compared with; `None` if no host writes conditions there.
fn leaves_host_conditions(
    act: &ObjectPatch,
    context: &Context<'_>,
) -> Result<Option<ResourceVersion>, Refusal> {
    let patch = act.patch.object("patch")?;
    if patch["status"].get("conditions").is_none() {
        return Ok(None);
    }
    let ObjectRef { kind, name, .. } = &act.object;
    let governs = |binding: &&Arc<Binding>| binding.spec.governs.kind() == *kind && has_conditions(binding);
    let governing: Vec<_> = context.view.bindings.values().filter(governs).collect();
    let wanted = grants::host_conditions(patch);
    if governing.is_empty() && wanted.is_empty() {
        return Ok(None);
    }
    let place = ObjectKey::from(&act.object);
    let cache = &context.view.cache;
    let mut shown = governing
        .iter()
        .filter_map(|binding| cache.last_known(&primary_scope(binding, &place), &place));
    let Some(now) = shown.next() else {
        let message = format!("{} {name}: this host does not know its conditions", kind.kind);
        return Err(Failure::new(Code::Unavailable, message).into());
    };
    let conditions = now.text_at("status.conditions");
    let conditions = conditions.filter(|all| all.contains(grants::HOST_CONDITION));
    let conditions = conditions.map_or(Value::Null, text::tree);
    let known = json!({"status": {"conditions": conditions}});
    if grants::host_conditions(&known) == wanted {
        Ok(Some(now.version()))
    } else {
        let what = format!(
            "write conditions of the host on {} {name}: a patch of the conditions must keep them",
            kind.kind
        );
        Err(MissingGrant::to(what).into())
    }
}

/// Adds the version that was compared to the precondition of a patch that contains conditions of hosts.
pub(super) fn pin(patch: &mut ObjectPatch, context: &Context<'_>) {
    if !context.is_guarded(Guard::ActsHavePreconditions) {
        patch.precondition.resource_version = None;
    } else if patch.precondition.resource_version.is_none() {
        // `check_act` has already compared the conditions. If they no longer match, version 0 makes the write fail.
        let compared = leaves_host_conditions(patch, context).unwrap_or(Some(ResourceVersion(0)));
        patch.precondition.resource_version = compared.map(|version| version.0.to_string());
    }
}

/// Without their guard, acts have no preconditions. Only the simulation removes it.
pub(super) fn drop_precondition(act: &mut Act, context: &Context<'_>) {
    if context.is_guarded(Guard::ActsHavePreconditions) {
        return;
    }
    if let Act::Delete(ObjectDelete { precondition, .. }) | Act::Evict(Eviction { precondition, .. }) = act {
        precondition.uid.clear();
        precondition.resource_version = None;
    }
}

/// Refuses creates of an object that is absent: nothing could hold their entries.
fn check_primary(act: &Act, context: &Context<'_>) -> Result<(), Failure> {
    match (create(act), &context.work.current) {
        (Some((operation, intent)), None) => {
            let key = &context.frame.key;
            let message = format!(
                "{operation} of {intent}: {key} is absent, and a create is entered in the status of its object"
            );
            Err(Failure::new(Code::FailedPrecondition, message))
        }
        _ => Ok(()),
    }
}

/// Refuses acts for a deleting object whose finalizer is gone: nothing would remove their results.
fn check_finalizer(context: &Context<'_>) -> Result<(), Failure> {
    match (&context.work.current, context.frame.finalizer()) {
        (Some(object), Some(finalizer)) if object.is_deleting() && !object.has_finalizer(finalizer) => {
            let key = &context.frame.key;
            let message = format!("{key} is being deleted and no longer holds {finalizer}");
            Err(Failure::new(Code::FailedPrecondition, message))
        }
        _ => Ok(()),
    }
}

/// Never performs a create in doubt again. A create that is *done*, by an earlier pass or by this one, is answered with its result, and
/// a create with an unknown outcome is refused.
pub(super) fn done_before(act: &Act, journal: &[Item], context: &Context<'_>) -> Option<Answer> {
    let (operation, intent) = create(act)?;
    let effect = context.frame.binding.catalogue.operations.get(operation)?.effect;
    if effect != OperationEffect::Create {
        return None;
    }
    let refused = |message: String| Some(Err(Failure::new(Code::FailedPrecondition, message)));
    let work = &context.work;
    if let Some(unreadable) = &work.unreadable {
        return refused(format!("{operation} of {intent} may be in doubt: {unreadable}"));
    }
    let same =
        |found: &&super::KnownEntry| found.entry.operation == operation && found.entry.intent == intent;
    for found in work.found.iter().chain(&work.entered).filter(same) {
        match &found.fate {
            Fate::Resolved(Resolution::Done(_)) if is_another(act, journal) => {
                return refused(format!(
                    "{operation} of {intent} was performed before in this pass, with other arguments"
                ));
            }
            Fate::Resolved(Resolution::Done(answer)) => {
                return Some(serde_json::from_str(answer).map_err(|e| {
                    let message = format!("{operation}: its answer is not JSON: {e}");
                    Failure::new(Code::InvalidArgument, message)
                }));
            }
            Fate::Resolved(Resolution::Absent) | Fate::NeverSent | Fate::Refused => {}
            Fate::Resolved(Resolution::Unknown(why)) => {
                return refused(format!("{operation} of {intent} is in doubt: {why}"));
            }
            Fate::Open => {
                return refused(format!(
                    "{operation} of {intent} is in doubt: its outcome is not known yet"
                ));
            }
        }
    }
    // An entry that came while this pass ran.
    let current = work.current.as_ref().map(Pending::of);
    let mut standing = current.iter().flat_map(Pending::entries);
    let is_unknown = |entry: &PendingEntry| {
        entry.operation == *operation && entry.intent == *intent && !work.is_resolved(entry)
    };
    if standing.any(is_unknown) {
        return refused(format!(
            "{operation} of {intent} was requested by another pass meanwhile, and its outcome is not known"
        ));
    }
    None
}

/// Whether this pass performed a create of the same operation and intent with other arguments.
fn is_another(act: &Act, journal: &[Item]) -> bool {
    let performed = journal.iter().filter_map(|item| match item {
        Item::Known(entry) => match &entry.request {
            Request::Act(done) if entry.answer.is_ok() => Some(done),
            _ => None,
        },
        Item::Named(..) => None,
    });
    let mut same = performed.filter(|done| create(done) == create(act));
    same.next().is_some_and(|done| done != act)
}

/// The refusal of a create that the same step requests twice.
pub(super) fn twice<'a>(mut earlier: impl Iterator<Item = &'a Act>, act: &Act) -> Option<Answer> {
    let (operation, intent) = create(act)?;
    earlier
        .any(|other| create(other) == Some((operation, intent)))
        .then(|| {
            let message = format!("{operation} of {intent} is requested twice in one step");
            Err(Failure::new(Code::FailedPrecondition, message))
        })
}

/// The operation and the intent of a create.
pub(super) fn create(act: &Act) -> Option<(&str, &str)> {
    match act {
        Act::Cloud(CloudAct {
            operation,
            intent: Some(intent),
            ..
        }) => Some((operation, intent)),
        _ => None,
    }
}
