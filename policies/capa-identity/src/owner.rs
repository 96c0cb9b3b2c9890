//! The identity as an owner of its cluster (CAPA-05).

use polity_sdk::OwnerReference;
use polity_sdk::prelude::*;

use crate::Cx;
use crate::config::OwnerReferencePolicy;
use crate::object::IdentityKind;

/// Makes the identity an owner of the cluster, beside those that it has; never the one that controls it, and never one
/// that its deletion waits for.
pub(crate) fn add<K: IdentityKind>(cx: &Cx, identity: &K) {
    if !cx.object().is_cluster() {
        return;
    }
    let mut primary = cx.object_mut();
    let owners = &mut primary.metadata.owner_references;
    let other = owners.iter().any(|owner| owner.api_version != K::API_VERSION);
    match cx.config().owner_reference {
        OwnerReferencePolicy::Always => {}
        OwnerReferencePolicy::WithOtherOwner if other => {}
        OwnerReferencePolicy::WithOtherOwner | OwnerReferencePolicy::Never => return,
    }
    let Metadata { name, uid, .. } = identity.metadata();
    // One of an identity that was deleted and made anew is of no use to anybody.
    owners.retain(|owner| (owner.kind.as_str(), &owner.name) != (K::KIND, name) || owner.uid == *uid);
    if owners.iter().all(|owner| owner.uid != *uid) {
        owners.push(OwnerReference {
            api_version: K::API_VERSION.to_owned(),
            kind: K::KIND.to_owned(),
            name: name.clone(),
            uid: uid.clone(),
            controller: Some(false),
            block_owner_deletion: Some(false),
        });
    }
    cx.note("CAPA-05");
}
