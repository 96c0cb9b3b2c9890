//! What a binding allows: everything else is refused, recorded and said on the binding.

use serde_json::Value;

use crate::binding::{Binding, Grant, KindGrant};
use crate::call::Scope;
use crate::catalogue::{Catalogue, OperationEffect};
use crate::contract::{
    Act, CloudAct, Code, Failure, Kind, ListQuery, Manifest, Need, ObjectRef, Question, Role,
};
use crate::object::Object;
use crate::path;

/// API groups that no request and no binding may name, whatever the grants.
const CLOSED_GROUPS: [&str; 8] = [
    "authentication.k8s.io",
    "authorization.k8s.io",
    "rbac.authorization.k8s.io",
    "certificates.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "polity.dev",
];
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

/// Whether a kind may be governed or named in a request at all.
pub fn is_closed(kind: &Kind) -> bool {
    let group = kind.api_version.split_once('/').map_or("", |(group, _)| group);
    CLOSED_GROUPS.contains(&group)
        || CLOSED_GROUPS
            .iter()
            .any(|closed| closed.strip_suffix(".k8s.io") == Some(group))
        || (group.is_empty() && ["Secret", "ServiceAccount"].contains(&kind.kind.as_str()))
}

fn refused(what: impl std::fmt::Display) -> Failure {
    Failure::new(Code::PermissionDenied, format!("not granted: {what}"))
}

fn named(kind: &Kind, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{} {namespace}/{name}", kind.kind),
        None => format!("{} {name}", kind.kind),
    }
}

/// Whether a name could reach outside what it names.
pub fn is_wellformed(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':'))
}

/// Checks a question against the grants; answers the scope to watch for questions a watch can answer.
pub fn check_question(
    binding: &Binding,
    role: Role,
    primary: Option<&Object>,
    question: &Question,
) -> Result<Option<Scope>, Failure> {
    match question {
        Question::Object(query) => {
            let object = &query.object;
            check_reference(object)?;
            let own = primary.and_then(Object::namespace);
            let grant = kind_grants(binding, &object.kind, |grant| matches!(grant, Grant::Ask(_)))
                .find(|grant| reaches(grant, own, object.namespace.as_deref(), Some(&object.name)))
                .ok_or_else(|| {
                    refused(format_args!(
                        "ask for {}",
                        named(&object.kind, object.namespace.as_deref(), &object.name)
                    ))
                })?;
            Ok(Some(scope(grant, own, object.namespace.as_deref(), None)))
        }
        Question::Objects(query) => {
            closed(&query.kind)?;
            let own = primary.and_then(Object::namespace);
            let grant = kind_grants(binding, &query.kind, |grant| matches!(grant, Grant::Ask(_)))
                .find(|grant| reaches(grant, own, query.namespace.as_deref(), None))
                .ok_or_else(|| refused(format_args!("list {}", query.kind.kind)))?;
            Ok(Some(scope(
                grant,
                own,
                query.namespace.as_deref(),
                node_of(query),
            )))
        }
        Question::Secret(object) => {
            check_names(object)?;
            let own = primary.and_then(Object::namespace);
            match sees_secret(binding, own, object.namespace.as_deref(), &object.name) {
                true => Ok(None),
                false => Err(refused(format_args!("see Secret {}", object.name))),
            }
        }
        Question::Cloud(call) => {
            operation(binding, &call.operation, |effect| effect == OperationEffect::Read)?;
            Ok(None)
        }
        Question::Permit(name) => binding
            .spec
            .grants
            .iter()
            .any(|grant| matches!(grant, Grant::Permit(names) if names.iter().any(|n| covers(n, name))))
            .then_some(None)
            .ok_or_else(|| refused(format_args!("permit {name}"))),
        Question::Credential(plan) => {
            let granted = binding
                .spec
                .grants
                .iter()
                .any(|grant| matches!(grant, Grant::Credential(true)));
            match granted && role == Role::Identity {
                true => check_plan(binding, primary, &plan.plan).map(|()| None),
                false => Err(refused("credential")),
            }
        }
    }
}

/// Checks an act against the grants.
pub fn check_act(binding: &Binding, primary: Option<&Object>, act: &Act) -> Result<(), Failure> {
    let own = primary.and_then(Object::namespace);
    let granted = |verb: &str, is: fn(&Grant) -> bool, object: &ObjectRef| {
        check_reference(object)?;
        kind_grants(binding, &object.kind, is)
            .any(|grant| reaches(grant, own, object.namespace.as_deref(), Some(&object.name)))
            .then_some(())
            .ok_or_else(|| {
                refused(format_args!(
                    "{verb} {}",
                    named(&object.kind, object.namespace.as_deref(), &object.name)
                ))
            })
    };
    match act {
        Act::Cloud(act) => {
            let effect = operation(binding, &act.operation, |effect| effect != OperationEffect::Read)?;
            check_sealed(binding, primary, act)?;
            match (effect, &act.intent) {
                (OperationEffect::Create, None) => Err(Failure::new(
                    Code::InvalidArgument,
                    format!("{} creates: its act needs an intent", act.operation),
                )),
                (OperationEffect::Change, Some(_)) => Err(Failure::new(
                    Code::InvalidArgument,
                    format!("{} creates nothing: its act takes no intent", act.operation),
                )),
                (OperationEffect::Create, Some(intent)) => check_intent(binding, act, intent),
                _ => Ok(()),
            }
        }
        Act::Create(object) => {
            let object: Value = serde_json::from_str(object)
                .map_err(|e| Failure::new(Code::InvalidArgument, format!("create: not JSON: {e}")))?;
            let object = Object::new(object);
            granted("create", |g| matches!(g, Grant::Create(_)), &object.reference())?;
            check_relation(binding, primary, |g| matches!(g, Grant::Create(_)), &object)?;
            let kind = object.kind();
            let by_name = kind_grants(binding, &kind, |g| matches!(g, Grant::Create(_)))
                .any(|grant| grant.name.as_deref() == Some(object.name()));
            match WORKLOADS.contains(&kind.kind.as_str()) && !by_name {
                true => Err(refused(format_args!("create workload {} by name", kind.kind))),
                false => Ok(()),
            }
        }
        Act::Patch(act) => granted("patch", |g| matches!(g, Grant::Patch(_)), &act.object),
        Act::Delete(act) => granted("delete", |g| matches!(g, Grant::Delete(_)), &act.object),
        Act::Evict(act) => granted("evict", |g| matches!(g, Grant::Evict(_)), &act.object),
        Act::Mint(act) => binding
            .spec
            .grants
            .iter()
            .any(|grant| matches!(grant, Grant::Mint(kinds) if kinds.contains(&act.kind)))
            .then_some(())
            .ok_or_else(|| refused(format_args!("mint {}", act.kind))),
    }
}

/// Whether a grant lets this Secret be seen.
fn sees_secret(binding: &Binding, own: Option<&str>, namespace: Option<&str>, name: &str) -> bool {
    binding.spec.grants.iter().any(|grant| match grant {
        Grant::Secrets(grant) => {
            namespace_reached(grant.namespaces.as_deref(), own, namespace)
                && grant.name.as_deref().is_none_or(|granted| granted == name)
        }
        _ => false,
    })
}

/// Whether a plan names nobody else's credentials: the Secrets of its chain are those that may be seen, and a token is
/// one of the primary's own namespace.
fn check_plan(binding: &Binding, primary: Option<&Object>, plan: &str) -> Result<(), Failure> {
    let plan: Value = serde_json::from_str(plan).unwrap_or_default();
    let own = primary.and_then(Object::namespace);
    for link in plan["chain"].as_array().into_iter().flatten() {
        if let Some(secret) = link.get("secret") {
            let (namespace, name) = (secret["namespace"].as_str(), secret["name"].as_str());
            let name = name.unwrap_or_default();
            if !sees_secret(binding, own, namespace, name) {
                return Err(refused(format_args!("credential of Secret {name}")));
            }
        }
        if let Some(token) = link.get("webIdentity")
            && (own.is_none() || token["namespace"].as_str() != own)
        {
            let namespace = token["namespace"].as_str().unwrap_or_default();
            return Err(refused(format_args!(
                "credential by a token of namespace {namespace}"
            )));
        }
    }
    Ok(())
}

/// What the names of references to minted tokens begin with: no Secret can be called so.
pub const MINTED: &str = "minted:";

/// Whether the Secrets that sealed arguments name are granted: those of the primary's own namespace, by name.
/// A minted token needs no grant of its own, because it is of use to the primary alone for which it was minted.
fn check_sealed(binding: &Binding, primary: Option<&Object>, act: &CloudAct) -> Result<(), Failure> {
    if !act.arguments.contains("$secret") {
        return Ok(());
    }
    let arguments: Value = serde_json::from_str(&act.arguments).unwrap_or_default();
    let mut names = Vec::new();
    sealed_names(&arguments, &mut names);
    let own = primary.and_then(Object::namespace);
    let granted = |name: &&str| name.starts_with(MINTED) || sees_secret(binding, own, own, name);
    match names.iter().find(|name| !granted(name)) {
        Some(name) => Err(refused(format_args!("unseal Secret {name}"))),
        None => Ok(()),
    }
}

fn sealed_names<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            let sealed = fields.get("$secret").and_then(|secret| secret["name"].as_str());
            names.extend(sealed);
            fields.values().for_each(|field| sealed_names(field, names));
        }
        Value::Array(items) => items.iter().for_each(|item| sealed_names(item, names)),
        _ => {}
    }
}

/// Whether a create is named as its intent says, where the catalogue knows by which argument.
fn check_intent(binding: &Binding, act: &CloudAct, intent: &str) -> Result<(), Failure> {
    let operation = binding.catalogue.operations.get(&act.operation);
    let Some(path) = operation.and_then(|o| o.intent.as_deref()) else {
        return Ok(());
    };
    let arguments: Value = serde_json::from_str(&act.arguments).unwrap_or_default();
    match path::get(&arguments, path).and_then(Value::as_str) {
        Some(named) if named == intent => Ok(()),
        _ => Err(Failure::new(
            Code::InvalidArgument,
            format!(
                "{}: its argument {path} must be its intent {intent}",
                act.operation
            ),
        )),
    }
}

/// Whether what reaches an object are grants by relation alone.
pub fn is_by_relation(
    binding: &Binding,
    primary: Option<&Object>,
    is: fn(&Grant) -> bool,
    object: &ObjectRef,
) -> bool {
    let own = primary.and_then(Object::namespace);
    kind_grants(binding, &object.kind, is)
        .filter(|grant| reaches(grant, own, object.namespace.as_deref(), Some(&object.name)))
        .all(|grant| grant.relation.is_some())
}

/// Whether an object that a grant by relation reached really stands in that relation to the primary.
pub fn check_relation(
    binding: &Binding,
    primary: Option<&Object>,
    is: fn(&Grant) -> bool,
    other: &Object,
) -> Result<(), Failure> {
    let kind = other.kind();
    let own = primary.and_then(Object::namespace);
    let related = kind_grants(binding, &kind, is)
        .filter(|grant| reaches(grant, own, other.namespace(), Some(other.name())))
        .any(|grant| match &grant.relation {
            None => true,
            Some(relation) => {
                // Two that both say nothing are no relation.
                let ours = primary
                    .and_then(|p| path::get(p.value(), &relation.ours))
                    .filter(|ours| **ours != "");
                ours.is_some() && ours == path::get(other.value(), &relation.theirs)
            }
        });
    related.then_some(()).ok_or_else(|| {
        refused(format_args!(
            "{}: not related",
            named(&kind, other.namespace(), other.name())
        ))
    })
}

fn operation(
    binding: &Binding,
    name: &str,
    fits: fn(OperationEffect) -> bool,
) -> Result<OperationEffect, Failure> {
    let granted = binding
        .spec
        .grants
        .iter()
        .any(|grant| matches!(grant, Grant::Cloud(names) if names.iter().any(|n| covers(n, name))));
    if !granted {
        return Err(refused(format_args!("cloud operation {name}")));
    }
    match binding.catalogue.operations.get(name) {
        None => Err(Failure::new(
            Code::Unimplemented,
            format!("this cloud has no operation {name}"),
        )),
        Some(operation) if fits(operation.effect) => Ok(operation.effect),
        Some(operation) => Err(Failure::new(
            Code::InvalidArgument,
            format!(
                "{name} has the effect {:?} and cannot be requested this way",
                operation.effect
            ),
        )),
    }
}

fn covers(granted: &str, name: &str) -> bool {
    match granted.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => granted == name,
    }
}

fn closed(kind: &Kind) -> Result<(), Failure> {
    match is_closed(kind) {
        true => Err(refused(format_args!(
            "{} of {} is closed to policies",
            kind.kind, kind.api_version
        ))),
        false => Ok(()),
    }
}

fn check_names(object: &ObjectRef) -> Result<(), Failure> {
    let namespace = object.namespace.as_deref().is_none_or(is_wellformed);
    match namespace && is_wellformed(&object.name) {
        true => Ok(()),
        false => Err(Failure::new(
            Code::InvalidArgument,
            format!("no valid name: {:.80}", object.name.escape_debug().to_string()),
        )),
    }
}

fn check_reference(object: &ObjectRef) -> Result<(), Failure> {
    closed(&object.kind)?;
    check_names(object)
}

fn kind_grants<'a>(
    binding: &'a Binding,
    kind: &'a Kind,
    is: fn(&Grant) -> bool,
) -> impl Iterator<Item = &'a KindGrant> {
    binding
        .spec
        .grants
        .iter()
        .filter(move |grant| is(grant))
        .filter_map(move |grant| match grant {
            Grant::Ask(g) | Grant::Create(g) | Grant::Patch(g) | Grant::Delete(g) | Grant::Evict(g) => {
                (g.api_version == kind.api_version && g.kind == kind.kind).then_some(g)
            }
            _ => None,
        })
}

fn namespace_reached(granted: Option<&[String]>, own: Option<&str>, asked: Option<&str>) -> bool {
    match (granted, asked) {
        (Some(all), _) if all.iter().any(|n| n == "*") => true,
        (Some(some), Some(asked)) => some.iter().any(|n| n == asked),
        (Some(_), None) => false,
        (None, asked) => asked.is_none() || asked == own,
    }
}

/// Whether a grant reaches an object (or, without a name, a list, whose objects are looked at one by one) of its kind.
fn reaches(grant: &KindGrant, own: Option<&str>, namespace: Option<&str>, name: Option<&str>) -> bool {
    let is_named = match (grant.name.as_deref(), name) {
        (Some(granted), Some(name)) => granted == name,
        (Some(_), None) => false,
        (None, _) => true,
    };
    // What lives in no namespace is nobody's own, whoever asks: it takes a name or a relation, or all namespaces.
    let is_own = name.is_none()
        || namespace.is_some()
        || grant.namespaces.is_some()
        || grant.name.is_some()
        || grant.relation.is_some();
    is_named && is_own && namespace_reached(grant.namespaces.as_deref(), own, namespace)
}

/// What is watched to answer a question under a grant: one watch per kind and scope.
fn scope(grant: &KindGrant, own: Option<&str>, asked: Option<&str>, node: Option<String>) -> Scope {
    let namespace = match &grant.namespaces {
        Some(all) if all.iter().any(|n| n == "*") => None,
        Some(_) => asked.map(str::to_owned),
        None => asked.and(own).map(str::to_owned),
    };
    Scope {
        kind: grant.kind(),
        namespace,
        name: grant.name.clone(),
        node,
        fields: grant.fields.clone().unwrap_or_default(),
    }
}

fn node_of(query: &ListQuery) -> Option<String> {
    let selector = query.field_selector.as_deref()?;
    (query.kind.kind == "Pod")
        .then(|| {
            selector
                .split(',')
                .find_map(|term| term.strip_prefix("spec.nodeName="))
        })
        .flatten()
        .map(|node| node.trim_start_matches('=').to_owned())
}

/// What stops a policy from being loaded into a binding; empty if nothing does.
/// `manifest` is the policy's, `others` those of the binding's other roles.
pub fn check_load(
    spec: &crate::binding::BindingSpec,
    catalogue: &Catalogue,
    manifest: &Manifest,
    others: &[&Manifest],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let governed = spec.governs.kind();
    if is_closed(&governed) {
        wrong.push(format!(
            "spec.governs: {} of {} cannot be governed",
            governed.kind, governed.api_version
        ));
    }
    if !manifest.governs.is_empty() && !manifest.governs.contains(&governed) {
        wrong.push(format!(
            "{} does not govern {} of {}",
            manifest.name, governed.kind, governed.api_version
        ));
    }
    for need in &manifest.needs {
        if !is_granted(spec, need) {
            wrong.push(format!(
                "{} needs {}, which spec.grants does not grant",
                manifest.name,
                describe(need)
            ));
        }
    }
    for other in others {
        for path in manifest
            .writes
            .iter()
            .filter(|path| other.writes.iter().any(|o| overlap(path, o)))
        {
            wrong.push(format!("{} and {} both write {path}", manifest.name, other.name));
        }
    }
    let creates = manifest.needs.iter().any(|need| match need {
        Need::Cloud(name) => catalogue
            .operations
            .iter()
            .any(|(operation, o)| covers(name, operation) && o.effect == OperationEffect::Create),
        _ => false,
    });
    if creates && !manifest.crds().any(has_pending) {
        wrong.push(format!(
            "{} creates, and its kind has no status.pending to write ahead in",
            manifest.name
        ));
    }
    wrong
}

fn has_pending(crd: &Value) -> bool {
    crd["spec"]["versions"].as_array().is_some_and(|versions| {
        versions.iter().any(|v| {
            let status = &v["schema"]["openAPIV3Schema"]["properties"]["status"];
            status["properties"]["pending"].is_object()
                || status["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true)
        })
    })
}

fn is_granted(spec: &crate::binding::BindingSpec, need: &Need) -> bool {
    let kind_is = |grant: &KindGrant, kind: &Kind| grant.kind() == *kind;
    spec.grants.iter().any(|grant| match (grant, need) {
        (Grant::Ask(g), Need::Objects(kind))
        | (Grant::Create(g), Need::Create(kind))
        | (Grant::Patch(g), Need::Patch(kind))
        | (Grant::Delete(g), Need::Delete(kind)) => kind_is(g, kind),
        (Grant::Secrets(_), Need::Secrets) | (Grant::Evict(_), Need::Evict) => true,
        (Grant::Cloud(names), Need::Cloud(name)) | (Grant::Permit(names), Need::Permit(name)) => {
            names.iter().any(|granted| covers(granted, name))
        }
        (Grant::Credential(granted), Need::Credential) => *granted,
        (Grant::Mint(kinds), Need::Mint(kind)) => kinds.contains(kind),
        _ => false,
    })
}

fn describe(need: &Need) -> String {
    match need {
        Need::Objects(kind) => format!("ask {}", kind.kind),
        Need::Secrets => "secrets".into(),
        Need::Cloud(name) => format!("cloud {name}"),
        Need::Permit(name) => format!("permit {name}"),
        Need::Credential => "credential".into(),
        Need::Create(kind) => format!("create {}", kind.kind),
        Need::Patch(kind) => format!("patch {}", kind.kind),
        Need::Delete(kind) => format!("delete {}", kind.kind),
        Need::Evict => "evict".into(),
        Need::Mint(kind) => format!("mint {kind}"),
    }
}

/// Whether two declared write paths can touch the same value. Keyed elements (`conditions[Ready]`) are distinct by key.
fn overlap(a: &str, b: &str) -> bool {
    let starts = |long: &str, short: &str| {
        long.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    starts(a, b) || starts(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn grant(more: Value) -> KindGrant {
        let mut grant = json!({"apiVersion": "v1", "kind": "Any"});
        let (Value::Object(all), Value::Object(more)) = (&mut grant, more) else {
            panic!("a grant is an object");
        };
        all.extend(more);
        serde_json::from_value(grant).expect("a grant")
    }

    #[test]
    fn what_lives_in_no_namespace_takes_a_name_a_relation_or_all_namespaces_whoever_asks() {
        for (more, one, other) in [
            (json!({}), false, false),
            (json!({"name": "one"}), true, false),
            (json!({"relation": {"theirs": "a", "ours": "b"}}), true, true),
            (json!({"namespaces": ["*"]}), true, true),
            (json!({"namespaces": ["team"]}), false, false),
            (json!({"namespaces": ["*"], "name": "one"}), true, false),
        ] {
            let grant = grant(more);
            for own in [None, Some("team")] {
                let reached = |name| reaches(&grant, own, None, Some(name));
                assert_eq!(
                    (reached("one"), reached("other")),
                    (one, other),
                    "{grant:?} {own:?}"
                );
            }
        }
    }

    #[test]
    fn a_cluster_scoped_object_has_no_namespace_of_its_own() {
        let own = grant(json!({}));
        assert!(!reaches(&own, None, Some("team"), Some("one")));
        assert!(reaches(&own, Some("team"), Some("team"), Some("one")));
        assert!(!reaches(&own, Some("team"), Some("victim"), Some("one")));
    }
}
