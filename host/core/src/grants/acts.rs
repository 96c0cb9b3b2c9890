//! Which acts are performed.

use std::sync::Arc;

use serde_json::Value;

use super::asks::at_home;
use super::guarded::{Change, check_guarded, host_conditions};
use super::{
    Grants, MINTED, Target, Verb, check_reference, check_relation, check_sealed, named, operation, refused,
};
use crate::binding::{Binding, KindGrant, MintGrant};
use crate::catalogue::{Operation, OperationEffect, SecretRef};
use crate::contract::{Act, CloudAct, Code, Document, Failure, Mint, ObjectPatch, ObjectRef, Role};
use crate::object::Object;
use crate::{path, plan};

/// Kinds that run containers: creating them needs a grant that names the object.
const WORKLOADS: [&str; 8] = [
    "Pod",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
    "CronJob",
];

/// Bytes of an intent: it is a name.
const INTENT: usize = 253;

/// Checks an act against the grants: the one that lets it through, where it is an act on an object that stands.
pub fn check_act(
    binding: &Binding,
    role: Role,
    primary: Option<&Object>,
    act: &Act,
) -> Result<Option<Arc<KindGrant>>, Failure> {
    let own = primary.and_then(Object::namespace);
    let grants = &binding.grants;
    at_home(cluster_of(act))?;
    let on = |verb, object: &ObjectRef| admitted(grants, verb, own, object).map(|grant| Some(grant.clone()));
    match act {
        // A denial comes before anything was changed there.
        Act::Cloud(act) if role == Role::Identity => {
            let message = format!("{}: an identity policy changes nothing in a cloud", act.operation);
            Err(Failure::new(Code::PermissionDenied, message))
        }
        Act::Cloud(act) => check_cloud(binding, primary, act).map(|()| None),
        Act::Create(act) => check_create(grants, primary, &act.object).map(|()| None),
        Act::Patch(act) => check_patch(grants, own, act).map(|grant| Some(grant.clone())),
        Act::Delete(act) => on(Verb::Delete, &act.object),
        Act::Evict(act) => on(Verb::Evict, &act.object),
        Act::Mint(act) => check_mint(grants, act).map(|()| None),
        Act::Revoke(token) => check_revoke(grants, token).map(|()| None),
    }
}

/// The cluster that an act is done in, where it names one.
fn cluster_of(act: &Act) -> Option<&str> {
    match act {
        Act::Create(act) => act.cluster.as_deref(),
        Act::Patch(act) => act.object.cluster.as_deref(),
        Act::Delete(act) => act.object.cluster.as_deref(),
        Act::Evict(act) => act.object.cluster.as_deref(),
        Act::Mint(act) => act.cluster.as_deref(),
        Act::Cloud(_) | Act::Revoke(_) => None,
    }
}

/// The grant to mint this kind of token.
pub fn minted<'a>(grants: &'a Grants, kind: &str) -> Option<&'a MintGrant> {
    grants.mint.iter().find(|grant| grant.kind() == kind)
}

/// The grant that reaches an object.
fn admitted<'a>(
    grants: &'a Grants,
    verb: Verb,
    own: Option<&str>,
    object: &ObjectRef,
) -> Result<&'a Arc<KindGrant>, Failure> {
    check_reference(object)?;
    let word = match verb {
        Verb::Ask => "ask for",
        Verb::Create => "create",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
        Verb::Evict => "evict",
    };
    grants
        .admits(verb, &object.kind, own, &Target::object(object))
        .ok_or_else(|| {
            let what = named(&object.kind, object.namespace.as_deref(), &object.name);
            refused(format_args!("{word} {what}"))
        })
}

fn check_cloud(binding: &Binding, primary: Option<&Object>, act: &CloudAct) -> Result<(), Failure> {
    let changes = |effect| effect != OperationEffect::Read;
    let operation = operation(&binding.grants, &binding.catalogue, &act.operation, changes)?;
    let arguments = act.arguments.tree(&act.operation)?;
    check_sealed(&binding.grants, primary, operation, arguments)?;
    let wrong = |message: String| Err(Failure::new(Code::InvalidArgument, message));
    match (operation.effect, &act.intent) {
        (OperationEffect::Create, None) => {
            wrong(format!("{} creates: its act needs an intent", act.operation))
        }
        (OperationEffect::Change, Some(_)) => wrong(format!(
            "{} creates nothing: its act takes no intent",
            act.operation
        )),
        (OperationEffect::Create, Some(intent)) if intent.is_empty() || intent.len() > INTENT => wrong(
            format!("{}: an intent is a name of 1 to {INTENT} bytes", act.operation),
        ),
        (OperationEffect::Create, Some(intent)) => check_intent(operation, &act.operation, arguments, intent),
        _ => Ok(()),
    }
}

fn check_create(grants: &Grants, primary: Option<&Object>, object: &Document) -> Result<(), Failure> {
    let own = primary.and_then(Object::namespace);
    let content = object.object("create")?;
    let object = Object::new(content.clone());
    let reference = object.reference();
    admitted(grants, Verb::Create, own, &reference)?;
    let by_name = WORKLOADS.contains(&object.kind().kind.as_str());
    let creation = Change::creation(&reference, content);
    let guarded = check_guarded(grants, own, Verb::Create, &creation, false)?;
    if !host_conditions(content).is_empty() {
        return Err(refused("create with conditions of the host"));
    }
    check_relation(guarded, primary, &object)?;
    match by_name {
        true => check_guarded(grants, own, Verb::Create, &creation, true)
            .map_err(|_| refused(format_args!("create workload {} by name", reference.kind.kind)))
            .and_then(|grant| check_relation(grant, primary, &object)),
        false => Ok(()),
    }
}

fn check_patch<'a>(
    grants: &'a Grants,
    own: Option<&str>,
    act: &ObjectPatch,
) -> Result<&'a Arc<KindGrant>, Failure> {
    admitted(grants, Verb::Patch, own, &act.object)?;
    let change = Change {
        object: &act.object,
        subresource: act.subresource.as_deref(),
        content: act.patch.object("patch")?,
        is_creation: false,
    };
    if let Some(wrong) = plan::misshapen(change.content, false) {
        return Err(Failure::new(Code::InvalidArgument, format!("patch: {wrong}")));
    }
    check_guarded(grants, own, Verb::Patch, &change, false)
}

fn check_mint(grants: &Grants, act: &Mint) -> Result<(), Failure> {
    let grant = minted(grants, &act.kind).ok_or_else(|| refused(format_args!("mint {}", act.kind)))?;
    let longest = grant.longest_ttl();
    match act.ttl {
        ttl if ttl > 0 && ttl <= longest => Ok(()),
        ttl => Err(Failure::new(
            Code::InvalidArgument,
            format!(
                "mint {} for {ttl} ms: from 1 to {longest} ms are granted",
                act.kind
            ),
        )),
    }
}

/// Who may mint may take back what it minted; whose that is, is compared where it is kept.
fn check_revoke(grants: &Grants, token: &Document) -> Result<(), Failure> {
    if grants.mint.is_empty() {
        return Err(refused("revoke a token"));
    }
    minted_token(token).map(drop)
}

/// The token that a sealed reference names, which was minted.
///
/// # Errors
/// `invalid-argument` for anything else.
pub fn minted_token(token: &Document) -> Result<SecretRef, Failure> {
    let reference = SecretRef::read(token.tree("revoke")?);
    let minted = reference.filter(|reference| reference.name.starts_with(MINTED));
    minted.ok_or_else(|| {
        let message = "revoke: expected the answer of a `mint`: {\"$secret\": {\"name\": .., \"key\": ..}}";
        Failure::new(Code::InvalidArgument, message)
    })
}

/// Whether a create is named as its intent says, where the catalogue knows by which argument.
fn check_intent(operation: &Operation, name: &str, arguments: &Value, intent: &str) -> Result<(), Failure> {
    let Some(path) = &operation.intent else {
        return Ok(());
    };
    match path::get(arguments, path).and_then(Value::as_str) {
        Some(named) if named == intent => Ok(()),
        _ => Err(Failure::new(
            Code::InvalidArgument,
            format!("{name}: its argument {path} must be its intent {intent:.80}"),
        )),
    }
}
