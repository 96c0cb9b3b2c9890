//! What a binding allows: everything else is refused, recorded and said on the binding.

use serde_json::Value;

use crate::binding::{Binding, BindingSpec, Grant, KindGrant, MintGrant};
use crate::call::Scope;
use crate::catalogue::{Catalogue, Operation, OperationEffect, SecretRef};
use crate::contract::{Act, Code, Failure, Kind, ListQuery, Manifest, Need, ObjectRef, Question, Role};
use crate::object::Object;
use crate::path;
use crate::plan::{self, Edits};

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
    match selectors.max(paths) {
        bytes if bytes <= QUESTION => Ok(()),
        bytes => Err(Failure::new(
            Code::InvalidArgument,
            format!("selectors or a projection of {bytes} bytes; at most {QUESTION} are taken"),
        )),
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

/// What an act puts into another object.
struct Change<'a> {
    object: &'a ObjectRef,
    subresource: Option<&'a str>,
    content: &'a Value,
    is_creation: bool,
}

impl<'a> Change<'a> {
    fn creation(object: &'a ObjectRef, content: &'a Value) -> Self {
        Change {
            object,
            subresource: None,
            content,
            is_creation: true,
        }
    }
}

/// Subresources that a grant to patch covers without naming them.
const OPEN_SUBRESOURCES: [&str; 2] = ["status", "scale"];
/// Lists in the metadata of an object that decide whether it goes on to exist.
const GUARDED_METADATA: [&str; 2] = ["finalizers", "ownerReferences"];

/// Whether an act leaves alone what belongs to hosts and to other controllers, unless one grant that reaches the object
/// names it. The write-ahead and the conditions of hosts are named by no grant.
fn check_guarded(
    binding: &Binding,
    own: Option<&str>,
    is: fn(&Grant) -> bool,
    change: &Change<'_>,
) -> Result<(), Failure> {
    let Change { object, content, .. } = change;
    let what = named(&object.kind, object.namespace.as_deref(), &object.name);
    if content["status"].get("pending").is_some() {
        return Err(refused(format_args!(
            "write status.pending of {what}: it is the host's"
        )));
    }
    let subresource = change
        .subresource
        .filter(|name| !OPEN_SUBRESOURCES.contains(name));
    if let Some(name) = subresource
        && (name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
    {
        let message = format!("patch: no valid subresource: {}", no_name(name).message);
        return Err(Failure::new(Code::InvalidArgument, message));
    }
    let writes = |field: &str| match content["metadata"].get(field) {
        None => false,
        // What is made may belong to somebody from the start: that ends nobody else. An empty list holds nothing up.
        Some(list) if change.is_creation => {
            field == "finalizers" && !list.is_null() && list.as_array().is_none_or(|all| !all.is_empty())
        }
        Some(_) => true,
    };
    let metadata: Vec<&str> = GUARDED_METADATA
        .into_iter()
        .filter(|field| writes(field))
        .collect();
    let names = |granted: &Option<Vec<String>>, name: &str| granted.iter().flatten().any(|g| g == name);
    let allowed = kind_grants(binding, &object.kind, is)
        .filter(|grant| reaches(grant, own, object.namespace.as_deref(), Some(&object.name)))
        .any(|grant| {
            subresource.is_none_or(|name| names(&grant.subresources, name))
                && metadata.iter().all(|field| names(&grant.metadata, field))
        });
    match (allowed, subresource) {
        (true, _) => Ok(()),
        (false, Some(name)) => Err(refused(format_args!("patch subresource {name} of {what}"))),
        (false, None) => Err(refused(format_args!(
            "write metadata.{} of {what}",
            metadata.join(", metadata.")
        ))),
    }
}

/// The prefix of the types of conditions that hosts write.
pub const HOST_CONDITION: &str = "polity.dev/";

/// The conditions of hosts on an object, or in a patch of one.
pub fn host_conditions(object: &Value) -> Vec<&Value> {
    let conditions = object["status"]["conditions"].as_array();
    let all = conditions.into_iter().flatten();
    all.filter(|condition| is_host_condition(condition)).collect()
}

/// Whether a condition is a host's.
pub fn is_host_condition(condition: &Value) -> bool {
    let kind = condition["type"].as_str();
    kind.is_some_and(|kind| kind.starts_with(HOST_CONDITION))
}

/// Fields of an object that are the API server's: a conclusion that edits them can never be published.
const SERVER_OWNED: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.generateName",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.managedFields",
];

/// What a policy's conclusion must not write to its primary, as it stands in `snapshot`; none if nothing.
pub fn check_writes(binding: &Binding, role: Role, snapshot: &Object, patch: &Value) -> Option<String> {
    let policy = binding.policy(role)?;
    let narrowed = binding
        .spec
        .policies
        .source(role)
        .and_then(|source| source.writes.as_ref());
    let covered = |declared: &[String], path: &str| declared.iter().any(|d| plan::declares(d, path));
    let finalizer = policy.manifest.finalizer.as_deref();
    let own = finalizer.map(own_finalizer);
    let edits = Edits::new(snapshot.clone(), patch.clone());
    edits.paths().into_iter().find_map(|(path, removes)| {
        let within = |whole: &str| plan::declares(whole, &path);
        if within("status.pending") {
            return Some("it writes status.pending, which is the host's".into());
        }
        if path.starts_with(&format!("status.conditions[{HOST_CONDITION}")) {
            // Whoever replaces the whole list leaves them out; the host puts them back.
            return (!removes).then(|| format!("it writes {path}, which is the host's"));
        }
        if SERVER_OWNED.iter().any(|owned| within(owned)) {
            return Some(format!("it writes {path}, which is the API server's"));
        }
        if own.as_deref() == Some(&path) {
            return None;
        }
        if is_guarded(&path) && !writes_guarded(&binding.spec, &path) {
            return Some(format!("it writes {path}, which no grant `write` names"));
        }
        if !covered(&policy.manifest.writes, &path) {
            return Some(format!("it writes {path}, which its manifest does not declare"));
        }
        let excluded = narrowed.is_some_and(|narrowed| !covered(narrowed, &path));
        excluded.then(|| format!("it writes {path}, which its binding leaves out of `writes`"))
    })
}

/// Whether a path of the primary decides if it goes on to exist.
fn is_guarded(path: &str) -> bool {
    GUARDED_METADATA
        .iter()
        .any(|field| plan::declares(&format!("metadata.{field}"), path))
}

fn writes_guarded(spec: &BindingSpec, path: &str) -> bool {
    let named = |grant: &Grant| match grant {
        Grant::Write(paths) => paths
            .iter()
            .any(|granted| is_guarded(granted) && plan::declares(granted, path)),
        _ => false,
    };
    spec.grants.iter().any(named)
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

/// What stops a policy from being loaded into a binding; empty if nothing does.
/// `manifest` is the policy's, `others` those of the binding's other roles.
pub fn check_load(
    spec: &BindingSpec,
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
    for path in manifest.writes.iter().filter(|path| is_guarded(path)) {
        // All finalizers means one's own: it is the only one that a policy writes without a grant.
        let means_own = path == "metadata.finalizers"
            || manifest.finalizer.as_deref().map(own_finalizer).as_ref() == Some(path);
        let narrowed = spec
            .policies
            .source(manifest.role)
            .and_then(|source| source.writes.as_ref());
        let is_left_out = narrowed.is_some_and(|narrowed| !narrowed.iter().any(|n| overlap(n, path)));
        if !means_own && !is_left_out && !writes_guarded(spec, path) {
            wrong.push(format!(
                "{} writes {path}: spec.grants needs `write: [{path}]`, or spec.policies.{}.writes leaves it out",
                manifest.name,
                manifest.role.as_str()
            ));
        }
    }
    if let Some(finalizer) = manifest
        .finalizer
        .as_deref()
        .filter(|name| !is_own_finalizer(name))
    {
        wrong.push(format!(
            "{} has the finalizer {finalizer:?}: it needs a qualified name, `domain/name`, and none of Kubernetes' own",
            manifest.name
        ));
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
    if creates(catalogue, manifest) && !manifest.crds().any(has_pending) {
        wrong.push(format!(
            "{} creates, and its kind has no status.pending to write ahead in",
            manifest.name
        ));
    }
    wrong
}

fn own_finalizer(name: &str) -> String {
    format!("metadata.finalizers[{name}]")
}

/// Whether a policy may call a finalizer its own. Those of Kubernetes keep volumes, namespaces and dependents alive.
/// What API servers take: <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>.
fn is_own_finalizer(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else {
        return false;
    };
    let kubernetes = |suffix: &str| domain == suffix || domain.ends_with(&format!(".{suffix}"));
    is_wellformed(domain)
        && is_wellformed(rest)
        && name.len() <= 253
        && !(kubernetes("kubernetes.io") || kubernetes("k8s.io") && !domain.ends_with(".x-k8s.io"))
}

fn has_pending(crd: &Value) -> bool {
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.any(keeps_pending)
}

/// Whether a version of a CRD keeps entries in `status.pending`.
fn keeps_pending(version: &Value) -> bool {
    let keeps_all = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
    let schema = &version["schema"]["openAPIV3Schema"];
    let status = &schema["properties"]["status"];
    let pending = &status["properties"]["pending"];
    match pending.is_object() {
        true => pending["type"] == "array" || keeps_all(pending),
        false => keeps_all(status) || (status.is_null() && keeps_all(schema)),
    }
}

/// What is wrong with the CRD that stands in the cluster, for a policy that creates: an API server drops what a CRD does
/// not have, whatever the CRD in the policy's manifest says.
pub fn check_definition(
    spec: &BindingSpec,
    catalogue: &Catalogue,
    manifest: &Manifest,
    crd: &Value,
) -> Option<String> {
    let (_, governed) = spec.governs.api_version.split_once('/')?;
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.find(|version| version["name"] == *governed)?;
    (creates(catalogue, manifest) && !keeps_pending(served)).then(|| {
        format!(
            "{} creates, and the CustomResourceDefinition {} in the cluster has no list status.pending to write ahead in: \
             apply the one of the policy (`polity crds` prints it)",
            manifest.name,
            crd["metadata"]["name"].as_str().unwrap_or_default()
        )
    })
}

/// Whether a policy needs operations that bring something into being.
fn creates(catalogue: &Catalogue, manifest: &Manifest) -> bool {
    manifest.needs.iter().any(|need| match need {
        Need::Cloud(name) => catalogue
            .operations
            .iter()
            .any(|(operation, o)| covers(name, operation) && o.effect == OperationEffect::Create),
        _ => false,
    })
}

fn is_granted(spec: &BindingSpec, need: &Need) -> bool {
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
        (Grant::Mint(kinds), Need::Mint(kind)) => kinds.iter().any(|grant| grant.kind() == kind),
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
    fn a_definition_keeps_entries_if_it_has_a_list_for_them() {
        let version =
            |status: Value| json!({"schema": {"openAPIV3Schema": {"properties": {"status": status}}}});
        for (status, keeps) in [
            (json!({"properties": {"pending": {"type": "array"}}}), true),
            (json!({"properties": {"pending": {"type": "string"}}}), false),
            (json!({"properties": {"phase": {"type": "string"}}}), false),
            (json!({"type": "object"}), false),
            (json!({"x-kubernetes-preserve-unknown-fields": true}), true),
            (
                json!({"x-kubernetes-preserve-unknown-fields": true, "properties": {"pending": {"type": "object"}}}),
                false,
            ),
        ] {
            assert_eq!(keeps_pending(&version(status.clone())), keeps, "{status}");
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
