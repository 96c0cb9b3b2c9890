//! Owner references: whether an owner exists, and how dependents are released.

use polity_kube_rules::{deletion::is_deleting, finalizers};
use serde_json::Value;

use crate::{
    controllers::deletion::FOREGROUND,
    store::{Key, Write},
};

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OwnerState {
    /// The owner exists, or this server cannot tell: its kind is not served, or a cluster-scoped object names
    /// a namespaced owner. Nothing is deleted on a guess.
    MayExist,
    /// The owner is being deleted and waits for its dependents.
    Waits,
    Gone,
}

/// Looks for the owner in a reference of the object at `dependent`: by kind, name and uid.
pub(crate) fn state(write: &Write<'_>, dependent: &Key, reference: &Value) -> OwnerState {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let Some(kind) = write.registry().named(group, text("kind")) else {
        return OwnerState::MayExist;
    };
    if kind.namespaced && dependent.namespace.is_empty() {
        return OwnerState::MayExist;
    }
    let found = write.with_uid(text("uid")).filter(|(owner, _)| {
        owner.resource == kind.storage
            && &*owner.name == text("name")
            && (owner.namespace.is_empty() || owner.namespace == dependent.namespace)
    });
    match found {
        None => OwnerState::Gone,
        Some((_, owner)) if waits(&owner.tree()) => OwnerState::Waits,
        Some(_) => OwnerState::MayExist,
    }
}

fn waits(owner: &Value) -> bool {
    is_deleting(owner) && finalizers::has(owner, FOREGROUND)
}

/// Drops every reference to an owner.
pub(crate) fn release(write: &mut Write<'_>, uid: &str) {
    for (key, dependent) in write.owned_by(uid) {
        let mut value = dependent.tree();
        if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"] != uid);
        }
        write.put(&key, value);
    }
}

/// Whether a dependent blocks the foreground deletion of its owner.
pub(crate) fn blocks(dependent: &Value, uid: &str) -> bool {
    let owners = dependent["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    owners
        .into_iter()
        .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
}
