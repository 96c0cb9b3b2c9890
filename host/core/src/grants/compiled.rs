//! The grants of a binding, compiled, and the parts of checks that all requests share.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_kube_rules::names::{LONGEST_SUBDOMAIN, is_wellformed};
use polity_kube_rules::text;
use serde_json::Value;

use super::grant::{Grant, KindGrant, MintGrant, Relation, SecretGrant, Verb};
use super::refusal::{MissingGrant, Refusal};
use crate::catalogue::{Catalogue, Operation, OperationEffect, SecretRef};
use crate::contract::{Code, Failure, Kind, ObjectRef};
use crate::object::Object;
use crate::projection;

/// API groups that no request and no binding may name, whatever is granted: their objects decide over rights.
pub(super) const CLOSED_GROUPS: [&str; 8] = [
    "authentication.k8s.io",
    "authorization.k8s.io",
    "rbac.authorization.k8s.io",
    "certificates.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "polity.dev",
];
/// Whether no binding may govern this kind and no request may name it.
pub fn is_closed(kind: &Kind) -> bool {
    let group = kind.api_version.split_once('/').map_or("", |(group, _)| group);
    CLOSED_GROUPS.contains(&group)
        || CLOSED_GROUPS
            .iter()
            .any(|closed| closed.strip_suffix(".k8s.io") == Some(group))
        || (group.is_empty() && ["Secret", "ServiceAccount"].contains(&kind.kind.as_str()))
}

/// The grants of a binding, by what they allow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grants {
    pub(super) objects: BTreeMap<(Verb, Kind), Vec<Arc<KindGrant>>>,
    pub(super) secrets: Vec<SecretGrant>,
    pub(super) operations: Vec<String>,
    pub(super) locks: Vec<String>,
    pub(super) credential: bool,
    pub(super) service_accounts: Vec<String>,
    pub(super) mint: Vec<MintGrant>,
    pub(super) reachable: bool,
}

/// The part of a request that grants are compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestTarget<'a> {
    pub(super) namespace: Option<&'a str>,
    /// `None` for a list. Its objects are then checked one by one.
    pub(super) name: Option<&'a str>,
    /// For patches: a subresource that the grant must name.
    pub(super) subresource: Option<&'a str>,
    /// Guarded metadata lists that the grant must name.
    pub(super) metadata: &'a [&'a str],
    /// Whether the grant must name the object.
    pub(super) by_name: bool,
}

impl<'a> RequestTarget<'a> {
    pub(super) fn object(object: &'a ObjectRef) -> Self {
        RequestTarget {
            namespace: object.namespace.as_deref(),
            name: Some(&object.name),
            ..RequestTarget::default()
        }
    }
}

impl Grants {
    /// Compiles the grants of a binding.
    pub fn compile(grants: &[Grant]) -> Self {
        let mut compiled = Grants::default();
        for grant in grants {
            match grant {
                Grant::Ask(grant) => compiled.object(Verb::Ask, grant),
                Grant::Create(grant) => compiled.object(Verb::Create, grant),
                Grant::Patch(grant) => compiled.object(Verb::Patch, grant),
                Grant::Delete(grant) => compiled.object(Verb::Delete, grant),
                Grant::Evict(grant) => compiled.object(Verb::Evict, grant),
                Grant::Secrets(grant) => compiled.secrets.push(grant.clone()),
                Grant::Cloud(names) => compiled.operations.extend_from_slice(names),
                Grant::Lock(names) => compiled.locks.extend_from_slice(names),
                Grant::Credential(granted) => compiled.credential |= granted,
                Grant::ServiceAccounts(names) => compiled.service_accounts.extend_from_slice(names),
                Grant::Mint(kinds) => compiled.mint.extend_from_slice(kinds),
                Grant::Reachable(granted) => compiled.reachable |= granted,
                // These grants concern the primary: `check_writes` reads them from the binding.
                Grant::Write(_) => {}
            }
        }
        for grants in compiled.objects.values_mut() {
            // A stable sort: within each group the order of the binding remains.
            grants.sort_by_key(|grant| grant.relation.is_some());
        }
        compiled
    }

    pub(super) fn object(&mut self, verb: Verb, grant: &KindGrant) {
        let grants = self.objects.entry((verb, grant.kind())).or_default();
        grants.push(Arc::new(grant.clone()));
    }

    /// The one grant that lets a request through, for a primary in the namespace `own`; `None` if there is none.
    pub(crate) fn admits(
        &self,
        verb: Verb,
        kind: &Kind,
        own: Option<&str>,
        target: &RequestTarget<'_>,
    ) -> Option<&Arc<KindGrant>> {
        let grants = self.objects.get(&(verb, kind.clone()))?;
        grants.iter().find(|grant| admits(grant, own, target))
    }

    /// Whether an operation of a cloud is granted.
    pub(super) fn covers_operation(&self, name: &str) -> bool {
        self.operations.iter().any(|granted| covers(granted, name))
    }

    /// Whether a lock is granted.
    pub(super) fn covers_lock(&self, name: &str) -> bool {
        self.locks.iter().any(|granted| covers(granted, name))
    }

    /// Whether tokens of a service account of the primary's namespace are granted.
    pub(super) fn covers_service_account(&self, name: &str) -> bool {
        self.service_accounts.iter().any(|granted| covers(granted, name))
    }

    /// Whether a grant lets policies see this Secret.
    pub(super) fn covers_secret(&self, own: Option<&str>, namespace: Option<&str>, name: &str) -> bool {
        self.secrets.iter().any(|grant| {
            namespace_reached(grant.namespaces.as_deref(), own, namespace)
                && grant.name.as_deref().is_none_or(|granted| granted == name)
        })
    }
}

/// Whether a grant fits the target of a request.
pub(super) fn admits(grant: &KindGrant, own: Option<&str>, target: &RequestTarget<'_>) -> bool {
    let names = |granted: &Option<Vec<String>>, name: &str| granted.iter().flatten().any(|g| g == name);
    // `reaches` compares the name itself.
    let by_name = !target.by_name || grant.name.is_some();
    by_name
        && reaches(grant, own, target.namespace, target.name)
        && target
            .subresource
            .is_none_or(|name| names(&grant.subresources, name))
        && target.metadata.iter().all(|field| names(&grant.metadata, field))
}

/// What a grant reaches for one primary. The relation of the grant compares a field of the primary: to find it may take
/// reading all of the primary, so that is done once for many objects.
pub(crate) struct Reach<'a> {
    pub(super) grant: &'a KindGrant,
    pub(super) own: Option<&'a str>,
    /// The field of the primary that the relation compares.
    pub(super) ours: Option<&'a str>,
}

impl<'a> Reach<'a> {
    pub(crate) fn of(grant: &'a KindGrant, primary: Option<&'a Object>) -> Self {
        let ours = |relation: &Relation| primary?.text_at(&relation.ours);
        Reach {
            grant,
            own: primary.and_then(Object::namespace),
            ours: grant.relation.as_ref().and_then(ours),
        }
    }

    /// Whether the grant reaches an object.
    pub(crate) fn includes(&self, other: &Object) -> bool {
        let theirs = |relation: &Relation| other.text_at(&relation.theirs);
        let theirs = self.grant.relation.as_ref().and_then(theirs);
        is_reached(self.grant, self.own, [self.ours, theirs], other)
    }

    /// The same for an object that is not made yet. It may be large, so only what the relation compares is made text.
    pub(super) fn check_new(&self, content: &Value, reference: &ObjectRef) -> Result<(), MissingGrant> {
        let theirs = |relation: &Relation| projection::get(content, &relation.theirs);
        let theirs = self.grant.relation.as_ref().and_then(theirs);
        let theirs = theirs.map(|value| text::canonical(value.clone()));
        let (namespace, name) = (reference.namespace.as_deref(), &reference.name);
        if is_related(self.grant, [self.ours, theirs.as_deref()])
            && reaches(self.grant, self.own, namespace, Some(name))
        {
            Ok(())
        } else {
            Err(MissingGrant::unrelated(reference))
        }
    }
}

/// Whether a grant reaches an object: it has the relation that the grant requires. `own` is the namespace of the primary,
/// and the two texts are what the relation compares, of the primary and of the object.
pub(crate) fn is_reached(
    grant: &KindGrant,
    own: Option<&str>,
    compared: [Option<&str>; 2],
    other: &Object,
) -> bool {
    is_related(grant, compared) && reaches(grant, own, other.namespace(), Some(other.name()))
}

pub(super) fn is_related(grant: &KindGrant, [ours, theirs]: [Option<&str>; 2]) -> bool {
    grant.relation.is_none() || ours.is_some_and(names_something) && ours == theirs
}

/// Whether a grant reaches an object.
pub(crate) fn check_relation(
    grant: &KindGrant,
    primary: Option<&Object>,
    other: &Object,
) -> Result<(), MissingGrant> {
    if Reach::of(grant, primary).includes(other) {
        Ok(())
    } else {
        Err(MissingGrant::unrelated(&other.reference()))
    }
}

/// References to minted tokens begin with this text. No Secret can have such a name.
pub const MINTED: &str = "minted:";

/// Whether grants let the cloud read the Secrets that sealed arguments name. They must be in the namespace of the
/// primary. A minted token needs no such grant, because only the primary for which it was minted can use it.
pub(super) fn check_sealed(
    grants: &Grants,
    primary: Option<&Object>,
    operation: &Operation,
    arguments: &Value,
) -> Result<(), Refusal> {
    let own = primary.and_then(Object::namespace);
    for (_, SecretRef { name, .. }) in operation.sealed_references(arguments)? {
        if !is_wellformed(&name) {
            return Err(no_name(&name).into());
        }
        if !name.starts_with(MINTED) && !grants.covers_secret(own, own, &name) {
            return Err(MissingGrant::to(format!("unseal Secret {name}")).into());
        }
    }
    Ok(())
}

/// The operation of a cloud, if it is granted and has this effect.
pub(super) fn operation<'a>(
    grants: &Grants,
    catalogue: &'a Catalogue,
    name: &str,
    fits: fn(OperationEffect) -> bool,
) -> Result<&'a Operation, Refusal> {
    check_word(name)?;
    if !grants.covers_operation(name) {
        return Err(MissingGrant::to(format!("cloud operation {name}")).into());
    }
    match catalogue.operations.get(name) {
        None => {
            let message = format!("this cloud has no operation {name}");
            Err(Failure::new(Code::Unimplemented, message).into())
        }
        Some(operation) if fits(operation.effect) => Ok(operation),
        Some(operation) => {
            let effect = operation.effect;
            let message = format!("{name} has the effect {effect:?} and cannot be requested this way");
            Err(Failure::new(Code::InvalidArgument, message).into())
        }
    }
}

/// Whether a value can relate two objects. Only non-empty strings and numbers can: otherwise two objects would count
/// as related because both have an empty value.
pub(super) fn names_something(text: &str) -> bool {
    match text.as_bytes().first() {
        Some(b'"') => text != "\"\"",
        Some(digit) => matches!(digit, b'-' | b'0'..=b'9'),
        None => false,
    }
}

pub(super) fn covers(granted: &str, name: &str) -> bool {
    match granted.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => granted == name,
    }
}

pub(super) fn closed(kind: &Kind) -> Result<(), MissingGrant> {
    if is_closed(kind) {
        let Kind { kind, api_version } = kind;
        Err(MissingGrant::to(format!(
            "{kind} of {api_version} is closed to policies"
        )))
    } else {
        Ok(())
    }
}

pub(super) fn check_names(object: &ObjectRef) -> Result<(), Failure> {
    let namespace = object.namespace.as_deref().is_none_or(is_wellformed);
    if namespace && is_wellformed(&object.name) {
        Ok(())
    } else {
        Err(no_name(&object.name))
    }
}

pub(super) fn no_name(name: &str) -> Failure {
    let name: String = name.chars().take(80).collect();
    Failure::new(
        Code::InvalidArgument,
        format!("no valid name: {}", name.escape_debug()),
    )
}

pub(super) fn check_reference(object: &ObjectRef) -> Result<(), Refusal> {
    check_kind(&object.kind)?;
    Ok(check_names(object)?)
}

pub(super) fn check_kind(kind: &Kind) -> Result<(), Refusal> {
    check_word(&kind.api_version)?;
    check_word(&kind.kind)?;
    Ok(closed(kind)?)
}

/// Refuses a word that is longer than any name: hosts keep such words in refusals, locks and watches.
pub(super) fn check_word(word: &str) -> Result<(), Failure> {
    if word.len() > LONGEST_SUBDOMAIN {
        Err(no_name(word))
    } else {
        Ok(())
    }
}

pub(super) fn namespace_reached(granted: Option<&[String]>, own: Option<&str>, asked: Option<&str>) -> bool {
    match (granted, asked) {
        (Some(all), _) if all.iter().any(|n| n == "*") => true,
        (Some(some), Some(asked)) => some.iter().any(|n| n == asked),
        (Some(_), None) => false,
        (None, asked) => asked.is_none() || asked == own,
    }
}

/// Whether a grant fits an object of its kind. Without a name it is a list, whose objects are checked one by one.
pub(super) fn reaches(
    grant: &KindGrant,
    own: Option<&str>,
    namespace: Option<&str>,
    name: Option<&str>,
) -> bool {
    let is_named = match (grant.name.as_deref(), name) {
        (Some(granted), Some(name)) => granted == name,
        (Some(_), None) => false,
        (None, _) => true,
    };
    // Cluster-scoped objects belong to no namespace. A grant covers them only with a name, a relation, or
    // namespaces. A primary in no namespace has none of its own to list in.
    let is_own = (name.is_none() && own.is_some())
        || namespace.is_some()
        || grant.namespaces.is_some()
        || grant.name.is_some()
        || grant.relation.is_some();
    is_named && is_own && namespace_reached(grant.namespaces.as_deref(), own, namespace)
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
            assert_eq!(names_something(&value.to_string()), relates, "{value}");
        }
    }

    #[test]
    fn a_cluster_scoped_object_has_no_namespace_of_its_own() {
        let own = grant(json!({}));
        assert!(!reaches(&own, None, Some("team"), Some("one")));
        assert!(reaches(&own, Some("team"), Some("team"), Some("one")));
        assert!(!reaches(&own, Some("team"), Some("victim"), Some("one")));
    }

    #[test]
    fn what_decides_over_rights_is_closed_whatever_the_grants() {
        for (api_version, kind, is_closed_to_policies) in [
            ("rbac.authorization.k8s.io/v1", "Role", true),
            ("authorization/v1", "Any", true),
            ("polity.dev/v1", "PolicyBinding", true),
            ("v1", "Secret", true),
            ("v1", "ServiceAccount", true),
            ("v1", "Pod", false),
            ("example.com/v1", "Secret", false),
            ("apps/v1", "Deployment", false),
        ] {
            let kind = Kind {
                api_version: api_version.into(),
                kind: kind.into(),
            };
            assert_eq!(is_closed(&kind), is_closed_to_policies, "{kind:?}");
        }
    }

    #[test]
    fn of_several_grants_one_without_a_relation_comes_first() {
        let related = json!({"apiVersion": "v1", "kind": "Any", "relation": {"theirs": "a", "ours": "b"}});
        let plain = json!({"apiVersion": "v1", "kind": "Any"});
        let all: Vec<Grant> =
            serde_json::from_value(json!([{"ask": related}, {"ask": plain}])).expect("grants");
        let target = RequestTarget {
            namespace: Some("team"),
            name: Some("one"),
            ..RequestTarget::default()
        };
        let grants = Grants::compile(&all);
        let admitted = grants.admits(Verb::Ask, &grant(json!({})).kind(), Some("team"), &target);
        assert_eq!(admitted.map(|grant| grant.relation.is_some()), Some(false));
    }

    #[test]
    fn an_object_is_related_by_what_both_say_and_where_the_grant_reaches() {
        let related = grant(json!({"relation": {"theirs": "spec.of", "ours": "metadata.name"}}));
        let primary = Object::new(json!({"metadata": {"namespace": "team", "name": "m"}}));
        for (namespace, of, is_related) in [("team", "m", true), ("team", "n", false), ("other", "m", false)]
        {
            let other = json!({"metadata": {"namespace": namespace, "name": "one"}, "spec": {"of": of}});
            let told = check_relation(&related, Some(&primary), &Object::new(other));
            assert_eq!(told.is_ok(), is_related, "{namespace} {of}");
        }
        let nobody = Object::new(json!({"metadata": {"name": "one"}}));
        assert!(
            check_relation(&related, Some(&primary), &nobody).is_err(),
            "it says nothing"
        );
        assert!(check_relation(&related, None, &nobody).is_err());
    }

    #[test]
    fn a_secret_is_seen_in_the_namespaces_of_its_grant() {
        let covers = |grant: Value, namespace: &str, name: &str| {
            let all: Vec<Grant> = serde_json::from_value(json!([{"secrets": grant}])).expect("grants");
            Grants::compile(&all).covers_secret(Some("team"), Some(namespace), name)
        };
        for (grant, own, other) in [
            (json!({}), true, false),
            (json!({"name": "s"}), true, false),
            (json!({"name": "t"}), false, false),
            (json!({"namespaces": ["other"]}), false, true),
            (json!({"namespaces": ["*"]}), true, true),
            (json!({"namespaces": ["*"], "name": "t"}), false, false),
        ] {
            let seen = (
                covers(grant.clone(), "team", "s"),
                covers(grant.clone(), "other", "s"),
            );
            assert_eq!(seen, (own, other), "{grant}");
        }
    }
}
