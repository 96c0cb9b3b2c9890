//! The identity as owner of its cluster (CAPA-05).

use polity_sdk::OwnerReference;
use polity_sdk::prelude::*;

use crate::Cx;
use crate::config::OwnerReferencePolicy;
use crate::object::IdentityKind;

/// Adds the identity to the owners of the cluster. The reference never makes the identity the controlling owner, and
/// never blocks the deletion of the identity.
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
    // An owner reference with another uid belongs to a deleted identity of the same name, so it is useless.
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
