//! Checks which acts may be performed.

use std::sync::Arc;

use serde_json::Value;

use super::asks::at_home;
use super::compiled::{
    Grants, MINTED, Reach, RequestTarget, check_reference, check_sealed, check_word, operation,
};
use super::grant::Verb;
use super::guarded::{ActContent, check_guarded, host_conditions};
use super::refusal::{MissingGrant, Refusal, named};
use crate::binding::{Binding, KindGrant, MintGrant};
use crate::catalogue::{Operation, OperationEffect, SecretRef};
use crate::contract::{Act, CloudAct, Code, Document, Failure, Mint, ObjectPatch, ObjectRef, Role};
use crate::object::{Object, reference_of};
use crate::time::millis;
use crate::{merge, projection};

/// Kinds that run containers. Creating one needs a grant that names the object.
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

/// The largest size of an intent in bytes: that of a name in Kubernetes.
const INTENT: usize = 253;

/// Checks an act against the grants. Returns the grant that lets it through, if the act concerns an existing object.
pub fn check_act(
    binding: &Binding,
    role: Role,
    primary: Option<&Object>,
    act: &Act,
) -> Result<Option<Arc<KindGrant>>, Refusal> {
    let own = primary.and_then(Object::namespace);
    let grants = &binding.grants;
    at_home(cluster_of(act))?;
    let on = |verb, object: &ObjectRef| admitted(grants, verb, own, object).map(|grant| Some(grant.clone()));
    match act {
        // An identity policy may still deny the object, so it must not have changed anything in the cloud.
        Act::Cloud(act) if role == Role::Identity => {
            let message = format!("{}: an identity policy changes nothing in a cloud", act.operation);
            Err(Failure::new(Code::PermissionDenied, message).into())
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

/// The cluster in which an act takes place, if the act names one.
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

/// The grant that lets an act on an object through.
fn admitted<'a>(
    grants: &'a Grants,
    verb: Verb,
    own: Option<&str>,
    object: &ObjectRef,
) -> Result<&'a Arc<KindGrant>, Refusal> {
    check_reference(object)?;
    grants
        .admits(verb, &object.kind, own, &RequestTarget::object(object))
        .ok_or_else(|| MissingGrant::to(format!("{verb} {}", named(object))).into())
}

fn check_cloud(binding: &Binding, primary: Option<&Object>, act: &CloudAct) -> Result<(), Refusal> {
    let changes = |effect| effect != OperationEffect::Read;
    let operation = operation(&binding.grants, &binding.catalogue, &act.operation, changes)?;
    let arguments = act.arguments.tree(&act.operation)?;
    check_sealed(&binding.grants, primary, operation, arguments)?;
    let wrong = |message: String| Err(Failure::new(Code::InvalidArgument, message).into());
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
        (OperationEffect::Create, Some(intent)) => {
            Ok(check_intent(operation, &act.operation, arguments, intent)?)
        }
        _ => Ok(()),
    }
}

fn check_create(grants: &Grants, primary: Option<&Object>, object: &Document) -> Result<(), Refusal> {
    let own = primary.and_then(Object::namespace);
    let content = object.object("create")?;
    let reference = reference_of(content);
    admitted(grants, Verb::Create, own, &reference)?;
    let by_name = WORKLOADS.contains(&reference.kind.kind.as_str());
    let creation = ActContent::creation(&reference, content);
    let guarded = check_guarded(grants, own, Verb::Create, &creation, false)?;
    if !host_conditions(content).is_empty() {
        return Err(MissingGrant::to("create with conditions of the host").into());
    }
    Reach::of(guarded, primary).check_new(content, &reference)?;
    if by_name {
        let named = check_guarded(grants, own, Verb::Create, &creation, true);
        let kind = &reference.kind.kind;
        let named = named.map_err(|_| MissingGrant::to(format!("create workload {kind} by name")))?;
        Ok(Reach::of(named, primary).check_new(content, &reference)?)
    } else {
        Ok(())
    }
}

fn check_patch<'a>(
    grants: &'a Grants,
    own: Option<&str>,
    act: &ObjectPatch,
) -> Result<&'a Arc<KindGrant>, Refusal> {
    admitted(grants, Verb::Patch, own, &act.object)?;
    let change = ActContent {
        object: &act.object,
        subresource: act.subresource.as_deref(),
        content: act.patch.object("patch")?,
        is_creation: false,
    };
    if let Some(wrong) = merge::misshapen(change.content, false) {
        return Err(Failure::new(Code::InvalidArgument, format!("patch: {wrong}")).into());
    }
    check_guarded(grants, own, Verb::Patch, &change, false)
}

fn check_mint(grants: &Grants, act: &Mint) -> Result<(), Refusal> {
    check_word(&act.kind)?;
    let grant = minted(grants, &act.kind).ok_or_else(|| MissingGrant::to(format!("mint {}", act.kind)))?;
    let longest = millis(grant.longest_ttl());
    match act.ttl {
        ttl if ttl > 0 && ttl <= longest => Ok(()),
        ttl => {
            let kind = &act.kind;
            let message = format!("mint {kind} for {ttl} ms: from 1 to {longest} ms are granted");
            Err(Failure::new(Code::InvalidArgument, message).into())
        }
    }
}

/// A binding that may mint may also revoke. The host that keeps the tokens compares their owners.
fn check_revoke(grants: &Grants, token: &Document) -> Result<(), Refusal> {
    if grants.mint.is_empty() {
        return Err(MissingGrant::to("revoke a token").into());
    }
    minted_token(token)?;
    Ok(())
}

/// The minted token that a sealed reference names.
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

/// Whether a create uses its intent as the name of the new object, if the catalogue says which argument is the name.
fn check_intent(operation: &Operation, name: &str, arguments: &Value, intent: &str) -> Result<(), Failure> {
    let Some(path) = &operation.intent else {
        return Ok(());
    };
    match projection::get(arguments, path).and_then(Value::as_str) {
        Some(named) if named == intent => Ok(()),
        _ => Err(Failure::new(
            Code::InvalidArgument,
            format!("{name}: its argument {path} must be its intent {intent:.80}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Grant;
    use crate::contract::{Eviction, Kind, ObjectDelete, Precondition};
    use crate::reconcile::fixture_binding;
    use serde_json::json;

    /// The result for an act of the Machine `m` in the namespace `team`, with these grants.
    fn check(grants: &Value, act: &Act) -> Result<(), Code> {
        let grants: Vec<Grant> = serde_json::from_value(grants.clone()).expect("grants");
        let mut binding = fixture_binding(&[]).with_grants(grants);
        let catalogue = Arc::make_mut(&mut binding.catalogue);
        if let Some(clone) = catalogue.operations.get_mut("vm.clone") {
            (clone.intent, clone.sealed) = (Some("name".into()), vec!["password".into()]);
        }
        let primary = Object::new(json!({"metadata": {"namespace": "team", "name": "m"}}));
        let checked = check_act(&binding, Role::Lifecycle, Some(&primary), act);
        checked.map(drop).map_err(|refusal| Failure::from(refusal).code)
    }

    fn object(kind: &str, namespace: &str, name: &str) -> ObjectRef {
        ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: "v1".into(),
                kind: kind.into(),
            },
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    fn standing() -> Precondition {
        Precondition {
            uid: "u".into(),
            resource_version: None,
        }
    }

    #[test]
    fn an_act_in_a_cloud_is_granted_fits_its_effect_and_creates_what_it_says() {
        let (longest, longer) = ("m".repeat(INTENT), "m".repeat(INTENT + 1));
        let sealed = |name: &str| json!({"name": "m", "password": {"$secret": {"name": name, "key": "k"}}});
        let of = |name: &str| json!({"name": name});
        for (operation, arguments, intent, expected) in [
            ("vm.stop", json!({}), None, Ok(())),
            ("vm.stop", json!({}), Some("m"), Err(Code::InvalidArgument)),
            ("vm.get", json!({}), None, Err(Code::InvalidArgument)),
            ("vm.grow", json!({}), None, Err(Code::Unimplemented)),
            ("disk.stop", json!({}), None, Err(Code::PermissionDenied)),
            ("vm.clone", of("m"), Some("m"), Ok(())),
            ("vm.clone", of("m"), None, Err(Code::InvalidArgument)),
            ("vm.clone", of("n"), Some("m"), Err(Code::InvalidArgument)),
            ("vm.clone", of(""), Some(""), Err(Code::InvalidArgument)),
            ("vm.clone", of(&longest), Some(&longest), Ok(())),
            ("vm.clone", of(&longer), Some(&longer), Err(Code::InvalidArgument)),
            ("vm.clone", sealed("granted"), Some("m"), Ok(())),
            ("vm.clone", sealed("minted:t"), Some("m"), Ok(())),
            (
                "vm.clone",
                sealed("other"),
                Some("m"),
                Err(Code::PermissionDenied),
            ),
            ("vm.clone", sealed(""), Some("m"), Err(Code::InvalidArgument)),
        ] {
            let act = Act::Cloud(CloudAct {
                operation: operation.into(),
                arguments: arguments.to_string().into(),
                intent: intent.map(str::to_owned),
            });
            let grants = json!([{"cloud": ["vm.*"]}, {"secrets": {"name": "granted"}}]);
            assert_eq!(check(&grants, &act), expected, "{act:?}");
        }
    }

    #[test]
    fn tokens_are_minted_within_the_bounds_of_their_grant_and_taken_back_by_who_may_mint() {
        let grants = json!([{"mint": ["password", {"kind": "bootstrap-token", "longestTtl": 10}]}]);
        for (kind, ttl, expected) in [
            ("password", 24 * 3_600_000, Ok(())),
            ("password", 24 * 3_600_000 + 1, Err(Code::InvalidArgument)),
            ("bootstrap-token", 0, Err(Code::InvalidArgument)),
            ("bootstrap-token", 10, Ok(())),
            ("bootstrap-token", 11, Err(Code::InvalidArgument)),
            ("another", 1, Err(Code::PermissionDenied)),
        ] {
            let (cluster, kind) = (None, kind.into());
            let act = Act::Mint(Mint { cluster, kind, ttl });
            assert_eq!(check(&grants, &act), expected, "{act:?}");
        }
        let revoke =
            |name: &str| Act::Revoke(json!({"$secret": {"name": name, "key": "k"}}).to_string().into());
        assert_eq!(check(&grants, &revoke("minted:t")), Ok(()));
        assert_eq!(check(&grants, &revoke("t")), Err(Code::InvalidArgument));
        assert_eq!(
            check(&json!([]), &revoke("minted:t")),
            Err(Code::PermissionDenied)
        );
    }

    #[test]
    fn a_refused_act_says_what_is_not_granted() {
        let binding = fixture_binding(&[]).with_grants(Vec::new());
        let said = |act: &Act| {
            let refused = check_act(&binding, Role::Lifecycle, None, act).expect_err("it is refused");
            Failure::from(refused).message
        };
        let mut of_no_namespace = object("Any", "team", "one");
        of_no_namespace.namespace = None;
        let eviction = Act::Evict(Eviction {
            object: of_no_namespace.clone(),
            precondition: standing(),
            grace_period_seconds: None,
        });
        assert_eq!(said(&eviction), "not granted: evict Any one");
        let grants = serde_json::from_value(json!([{"patch": {"apiVersion": "v1", "kind": "Any",
            "namespaces": ["*"]}}]));
        let binding = fixture_binding(&[]).with_grants(grants.expect("grants"));
        let lists = json!({"metadata": {"finalizers": [], "ownerReferences": []}});
        let patch = Act::Patch(ObjectPatch {
            object: of_no_namespace,
            precondition: standing(),
            subresource: None,
            patch: lists.to_string().into(),
        });
        let refused = check_act(&binding, Role::Lifecycle, None, &patch).expect_err("it is refused");
        assert_eq!(
            Failure::from(refused).message,
            "not granted: write metadata.finalizers, metadata.ownerReferences of Any one"
        );
    }

    #[test]
    fn an_object_is_deleted_or_evicted_where_a_grant_of_that_sort_reaches_it() {
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret"});
        let grants = json!([{"delete": config_map}, {"evict": pod}, {"delete": secret}]);
        let mut elsewhere = object("ConfigMap", "team", "a");
        elsewhere.cluster = Some("other".into());
        for (object, deleted, evicted) in [
            (
                object("ConfigMap", "team", "a"),
                Ok(()),
                Err(Code::PermissionDenied),
            ),
            (object("Pod", "team", "a"), Err(Code::PermissionDenied), Ok(())),
            (
                object("ConfigMap", "other", "a"),
                Err(Code::PermissionDenied),
                Err(Code::PermissionDenied),
            ),
            (
                object("Secret", "team", "a"),
                Err(Code::PermissionDenied),
                Err(Code::PermissionDenied),
            ),
            (
                object("ConfigMap", "team", "a/b"),
                Err(Code::InvalidArgument),
                Err(Code::InvalidArgument),
            ),
            (elsewhere, Err(Code::Unimplemented), Err(Code::Unimplemented)),
        ] {
            let delete = Act::Delete(ObjectDelete {
                object: object.clone(),
                precondition: standing(),
                grace_period_seconds: None,
                propagation_policy: None,
            });
            let evict = Act::Evict(Eviction {
                object: object.clone(),
                precondition: standing(),
                grace_period_seconds: None,
            });
            assert_eq!(
                (check(&grants, &delete), check(&grants, &evict)),
                (deleted, evicted),
                "{object:?}"
            );
        }
    }

    const DENIED: Result<(), Code> = Err(Code::PermissionDenied);

    fn none() -> Value {
        json!({})
    }

    /// What comes of creating an object of this kind, by a grant of the kind with these fields more.
    fn created(grant: &Value, kind: &str, rest: &Value) -> Result<(), Code> {
        let mut grant_of = json!({"apiVersion": "v1", "kind": kind});
        merge::apply(grant, &mut grant_of);
        let mut content =
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "team", "name": "a"}});
        merge::apply(rest, &mut content);
        check(&json!([{"create": grant_of}]), &Act::create(content.to_string()))
    }

    #[test]
    fn what_is_created_belongs_to_nobody_else() {
        let metadata = |rest: Value| json!({"metadata": rest});
        for (grant, rest, expected) in [
            (none(), none(), Ok(())),
            (none(), metadata(json!({"namespace": "other"})), DENIED),
            (none(), metadata(json!({"finalizers": ["a/b"]})), DENIED),
            (none(), metadata(json!({"finalizers": "a/b"})), DENIED),
            (none(), metadata(json!({"finalizers": []})), Ok(())),
            (
                none(),
                metadata(json!({"ownerReferences": [{"uid": "u"}]})),
                Ok(()),
            ),
            (
                json!({"metadata": ["finalizers"]}),
                metadata(json!({"finalizers": ["a/b"]})),
                Ok(()),
            ),
            (none(), json!({"status": {"pending": []}}), DENIED),
            (
                none(),
                json!({"status": {"conditions": [{"type": "polity.dev/Forged"}]}}),
                DENIED,
            ),
            (
                none(),
                json!({"status": {"conditions": [{"type": "Ready"}]}}),
                Ok(()),
            ),
        ] {
            assert_eq!(created(&grant, "ConfigMap", &rest), expected, "{grant} {rest}");
        }
    }

    #[test]
    fn what_is_created_is_related_and_a_workload_is_granted_by_name() {
        let related = || json!({"relation": {"theirs": "data.machine", "ours": "metadata.name"}});
        for (grant, kind, rest, expected) in [
            (related(), "ConfigMap", json!({"data": {"machine": "m"}}), Ok(())),
            (related(), "ConfigMap", json!({"data": {"machine": "n"}}), DENIED),
            (none(), "Pod", none(), DENIED),
            (json!({"name": "a"}), "Pod", none(), Ok(())),
            (json!({"name": "b"}), "Pod", none(), DENIED),
        ] {
            assert_eq!(created(&grant, kind, &rest), expected, "{grant} {kind} {rest}");
        }
    }

    /// What comes of patching a ConfigMap, by a grant with these fields more.
    fn patched(grant: &Value, subresource: Option<&str>, patch: &Value) -> Result<(), Code> {
        let mut grant_of = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        merge::apply(grant, &mut grant_of);
        let act = Act::Patch(ObjectPatch {
            object: object("ConfigMap", "team", "a"),
            precondition: standing(),
            subresource: subresource.map(str::to_owned),
            patch: patch.to_string().into(),
        });
        check(&json!([{"patch": grant_of}]), &act)
    }

    #[test]
    fn a_patch_leaves_alone_what_its_grant_does_not_name() {
        let wrong = Err(Code::InvalidArgument);
        for (grant, subresource, patch, expected) in [
            (none(), None, json!({"data": {"a": "b"}}), Ok(())),
            (json!({"name": "b"}), None, none(), DENIED),
            (none(), Some("status"), none(), Ok(())),
            (none(), Some("scale"), none(), Ok(())),
            (none(), Some("resize"), none(), DENIED),
            (
                json!({"subresources": ["resize", "a-b"]}),
                Some("resize"),
                none(),
                Ok(()),
            ),
            (
                json!({"subresources": ["resize", "a-b"]}),
                Some("a-b"),
                none(),
                Ok(()),
            ),
            (none(), Some(""), none(), wrong),
            (none(), Some("../x"), none(), wrong),
            (none(), None, json!({"metadata": {"finalizers": []}}), DENIED),
            (none(), None, json!({"metadata": {"ownerReferences": []}}), DENIED),
            (
                json!({"metadata": ["ownerReferences"]}),
                None,
                json!({"metadata": {"ownerReferences": []}}),
                Ok(()),
            ),
            (
                json!({"metadata": ["ownerReferences"]}),
                None,
                json!({"metadata": {"finalizers": []}}),
                DENIED,
            ),
            (
                none(),
                Some("status"),
                json!({"status": {"pending": null}}),
                DENIED,
            ),
            (none(), None, json!({"metadata": 5}), wrong),
            (none(), None, json!([]), wrong),
        ] {
            let told = patched(&grant, subresource, &patch);
            assert_eq!(told, expected, "{grant} {subresource:?} {patch}");
        }
    }
}
