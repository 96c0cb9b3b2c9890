//! What a binding allows: everything else is refused, recorded and said on the binding.

mod guarded;
mod load;

use serde_json::Value;

use guarded::{Change, check_guarded};
pub use guarded::{HOST_CONDITION, check_writes, host_conditions, is_host_condition};
pub use load::{check_definition, check_load};
pub use polity_kube_rules::names::is_wellformed;

use crate::binding::{Binding, Grant, KindGrant, MintGrant};
use crate::call::Scope;
use crate::catalogue::{Operation, OperationEffect, SecretRef};
use crate::contract::{Act, Code, Failure, Kind, ListQuery, ObjectRef, Question, Role};
use crate::object::Object;
use crate::path;
use crate::plan;
use crate::selector::Selector;

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

/// Checks a question against the grants; answers the scope to watch for questions a watch can answer.
pub fn check_question(
    binding: &Binding,
    role: Role,
    primary: Option<&Object>,
    question: &Question,
) -> Result<Option<Scope>, Failure> {
    check_size(question)?;
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
            let operation = operation(binding, &call.operation, |effect| effect == OperationEffect::Read)?;
            check_sealed(binding, primary, operation, call.arguments.tree(&call.operation)?)?;
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
                true => check_plan(binding, primary, plan.plan.tree("credential")?).map(|()| None),
                false => Err(refused("credential")),
            }
        }
    }
}

/// Bytes of the selectors and of the projection of a question: API servers take no longer labels than 63 characters, and
/// the host keeps each question for as long as its object depends on the answer.
const QUESTION: usize = 4_096;
/// Bytes of an intent: it is a name.
const INTENT: usize = 253;

fn check_size(question: &Question) -> Result<(), Failure> {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let (selectors, projection) = match question {
        Question::Object(query) => (0, &query.projection),
        Question::Objects(query) => {
            let selectors = length(&query.label_selector).saturating_add(length(&query.field_selector));
            (selectors, &query.projection)
        }
        _ => return Ok(()),
    };
    let paths: usize = projection.iter().map(|path| path.len() + 1).sum();
    let bytes = selectors.max(paths);
    if bytes > QUESTION {
        let message = format!("selectors or a projection of {bytes} bytes; at most {QUESTION} are taken");
        return Err(Failure::new(Code::InvalidArgument, message));
    }
    match question {
        Question::Objects(query) => check_selectors(query),
        _ => Ok(()),
    }
}

/// A selector that is none would select nothing, which looks like an answer.
fn check_selectors(query: &ListQuery) -> Result<(), Failure> {
    let is_label = |text: &&str| Selector::parse(text).is_some();
    let is_field = |text: &&str| text.split(',').all(|term| term.contains('='));
    let no_label = query.label_selector.as_deref().filter(|text| !is_label(text));
    let no_field = query.field_selector.as_deref().filter(|text| !is_field(text));
    match no_label.or(no_field) {
        None => Ok(()),
        Some(text) => {
            let text: String = text.chars().take(80).collect();
            let message = format!("no valid selector: {}", text.escape_debug());
            Err(Failure::new(Code::InvalidArgument, message))
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
            let operation = operation(binding, &act.operation, |effect| effect != OperationEffect::Read)?;
            let arguments = act.arguments.tree(&act.operation)?;
            check_sealed(binding, primary, operation, arguments)?;
            match (operation.effect, &act.intent) {
                (OperationEffect::Create, None) => Err(Failure::new(
                    Code::InvalidArgument,
                    format!("{} creates: its act needs an intent", act.operation),
                )),
                (OperationEffect::Change, Some(_)) => Err(Failure::new(
                    Code::InvalidArgument,
                    format!("{} creates nothing: its act takes no intent", act.operation),
                )),
                (OperationEffect::Create, Some(intent)) if intent.is_empty() || intent.len() > INTENT => {
                    Err(Failure::new(
                        Code::InvalidArgument,
                        format!("{}: an intent is a name of 1 to {INTENT} bytes", act.operation),
                    ))
                }
                (OperationEffect::Create, Some(intent)) => {
                    check_intent(operation, &act.operation, arguments, intent)
                }
                _ => Ok(()),
            }
        }
        Act::Create(object) => {
            let object = Object::new(object.object("create")?.clone());
            let reference = object.reference();
            granted("create", |g| matches!(g, Grant::Create(_)), &reference)?;
            let creation = Change::creation(&reference, object.value());
            check_guarded(binding, own, |g| matches!(g, Grant::Create(_)), &creation)?;
            if !host_conditions(object.value()).is_empty() {
                return Err(refused("create with conditions of the host"));
            }
            check_relation(binding, primary, |g| matches!(g, Grant::Create(_)), &object)?;
            let kind = object.kind();
            let by_name = kind_grants(binding, &kind, |g| matches!(g, Grant::Create(_)))
                .any(|grant| grant.name.as_deref() == Some(object.name()));
            match WORKLOADS.contains(&kind.kind.as_str()) && !by_name {
                true => Err(refused(format_args!("create workload {} by name", kind.kind))),
                false => Ok(()),
            }
        }
        Act::Patch(act) => {
            granted("patch", |g| matches!(g, Grant::Patch(_)), &act.object)?;
            let change = Change {
                object: &act.object,
                subresource: act.subresource.as_deref(),
                content: act.patch.object("patch")?,
                is_creation: false,
            };
            if let Some(wrong) = plan::misshapen(change.content, false) {
                return Err(Failure::new(Code::InvalidArgument, format!("patch: {wrong}")));
            }
            check_guarded(binding, own, |g| matches!(g, Grant::Patch(_)), &change)
        }
        Act::Delete(act) => granted("delete", |g| matches!(g, Grant::Delete(_)), &act.object),
        Act::Evict(act) => granted("evict", |g| matches!(g, Grant::Evict(_)), &act.object),
        Act::Mint(act) => {
            let grant =
                minted(binding, &act.kind).ok_or_else(|| refused(format_args!("mint {}", act.kind)))?;
            match act.ttl {
                ttl if ttl > 0 && ttl <= grant.longest_ttl() => Ok(()),
                ttl => Err(Failure::new(
                    Code::InvalidArgument,
                    format!(
                        "mint {} for {ttl} ms: from 1 to {} ms are granted",
                        act.kind,
                        grant.longest_ttl()
                    ),
                )),
            }
        }
    }
}

/// The grant to mint this kind of token.
pub fn minted<'a>(binding: &'a Binding, kind: &str) -> Option<&'a MintGrant> {
    let lists = binding.spec.grants.iter().filter_map(|grant| match grant {
        Grant::Mint(kinds) => Some(kinds),
        _ => None,
    });
    lists.flatten().find(|grant| grant.kind() == kind)
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
fn check_plan(binding: &Binding, primary: Option<&Object>, plan: &Value) -> Result<(), Failure> {
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
fn check_sealed(
    binding: &Binding,
    primary: Option<&Object>,
    operation: &Operation,
    arguments: &Value,
) -> Result<(), Failure> {
    let own = primary.and_then(Object::namespace);
    for (_, SecretRef { name, .. }) in operation.sealed_references(arguments)? {
        if !is_wellformed(&name) {
            return Err(no_name(&name));
        }
        if !name.starts_with(MINTED) && !sees_secret(binding, own, own, &name) {
            return Err(refused(format_args!("unseal Secret {name}")));
        }
    }
    Ok(())
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
                let ours = primary.and_then(|p| path::get(p.value(), &relation.ours));
                ours.is_some_and(names_something) && ours == path::get(other.value(), &relation.theirs)
            }
        });
    related.then_some(()).ok_or_else(|| {
        refused(format_args!(
            "{}: not related",
            named(&kind, other.namespace(), other.name())
        ))
    })
}

/// Whether a value can relate two objects: two that both say nothing, or hold the same empty list, are not related.
fn names_something(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(_) => true,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

fn operation<'a>(
    binding: &'a Binding,
    name: &str,
    fits: fn(OperationEffect) -> bool,
) -> Result<&'a Operation, Failure> {
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
        Some(operation) if fits(operation.effect) => Ok(operation),
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
        false => Err(no_name(&object.name)),
    }
}

fn no_name(name: &str) -> Failure {
    let name: String = name.chars().take(80).collect();
    Failure::new(
        Code::InvalidArgument,
        format!("no valid name: {}", name.escape_debug()),
    )
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
    fn a_relation_needs_something_to_relate_by() {
        for (value, relates) in [
            (json!("vm-1"), true),
            (json!(7), true),
            (json!(""), false),
            (json!(null), false),
            (json!([]), false),
            (json!({}), false),
            (json!(["vm-1"]), false),
            (json!(false), false),
        ] {
            assert_eq!(names_something(&value), relates, "{value}");
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
