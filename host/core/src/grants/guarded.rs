//! Protects fields of hosts and of other controllers: a policy writes them only by a grant that names them, or never.

use serde_json::Value;

use std::sync::Arc;

use super::compiled::{Grants, RequestTarget, no_name};
use super::grant::Verb;
use super::refusal::{MissingGrant, Refusal, named};
use crate::binding::{Binding, BindingSpec, Grant, KindGrant};
use crate::contract::{Code, Failure, ObjectRef, Role};
use crate::merge::{self, Edits};
use polity_kube_rules::names::is_wellformed;

/// The content that an act writes into another object.
pub(super) struct ActContent<'a> {
    pub(super) object: &'a ObjectRef,
    pub(super) subresource: Option<&'a str>,
    pub(super) content: &'a Value,
    pub(super) is_creation: bool,
}

impl<'a> ActContent<'a> {
    pub(super) fn creation(object: &'a ObjectRef, content: &'a Value) -> Self {
        ActContent {
            object,
            subresource: None,
            content,
            is_creation: true,
        }
    }
}

/// Subresources that a patch grant covers without naming them.
const OPEN_SUBRESOURCES: [&str; 2] = ["status", "scale"];
/// Lists in the metadata that decide whether an object continues to exist.
const GUARDED_METADATA: [&str; 2] = ["finalizers", "ownerReferences"];

/// The grant that lets a change through. A change of guarded fields needs a grant that names them. No grant can name
/// `status.pending` or the conditions of hosts. With `by_name`, the grant must name the object.
pub(super) fn check_guarded<'a>(
    grants: &'a Grants,
    own: Option<&str>,
    verb: Verb,
    change: &ActContent<'_>,
    by_name: bool,
) -> Result<&'a Arc<KindGrant>, Refusal> {
    let ActContent { object, content, .. } = change;
    if content["status"].get("pending").is_some() {
        let what = format!(
            "write status.pending of {}: it belongs to the host",
            named(object)
        );
        return Err(MissingGrant::to(what).into());
    }
    let subresource = change
        .subresource
        .filter(|name| !OPEN_SUBRESOURCES.contains(name));
    if let Some(name) = subresource
        && (!is_wellformed(name) || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
    {
        let message = format!("patch: no valid subresource: {}", no_name(name).message);
        return Err(Failure::new(Code::InvalidArgument, message).into());
    }
    let writes = |field: &str| match content["metadata"].get(field) {
        None => false,
        // A new object may have an owner from the start, because that ends no other object. An empty list of
        // finalizers blocks nothing.
        Some(list) if change.is_creation => {
            field == "finalizers" && !list.is_null() && list.as_array().is_none_or(|all| !all.is_empty())
        }
        Some(_) => true,
    };
    let metadata: Vec<&'static str> = GUARDED_METADATA
        .into_iter()
        .filter(|field| writes(field))
        .collect();
    let target = RequestTarget {
        subresource,
        metadata: &metadata,
        by_name,
        ..RequestTarget::object(object)
    };
    grants.admits(verb, &object.kind, own, &target).ok_or_else(|| {
        let object = named(object);
        MissingGrant::to(match subresource {
            Some(name) => format!("patch subresource {name} of {object}"),
            None => format!("write metadata.{} of {object}", metadata.join(", metadata.")),
        })
        .into()
    })
}

/// The prefix of the types of conditions that hosts write.
pub const HOST_CONDITION: &str = "polity.dev/";

/// The conditions of hosts on an object, or in a patch of one.
pub fn host_conditions(object: &Value) -> Vec<&Value> {
    let conditions = object["status"]["conditions"].as_array();
    let all = conditions.into_iter().flatten();
    all.filter(|condition| is_host_condition(condition)).collect()
}

/// Whether a condition belongs to a host.
pub fn is_host_condition(condition: &Value) -> bool {
    let kind = condition["type"].as_str();
    kind.is_some_and(|kind| kind.starts_with(HOST_CONDITION))
}

/// Fields that belong to the API server. A conclusion that edits them can never be published.
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

/// What these edits of a conclusion write although they must not; `None` if there is nothing.
pub fn check_writes(binding: &Binding, role: Role, edits: &Edits) -> Option<String> {
    let policy = binding.policy(role)?;
    let narrowed = binding
        .spec
        .policies
        .source(role)
        .and_then(|source| source.writes.as_ref());
    let covered = |declared: &[String], path: &str| declared.iter().any(|d| merge::declares(d, path));
    let finalizer = policy.manifest.finalizer.as_deref();
    let own = finalizer.map(own_finalizer);
    edits.paths().into_iter().find_map(|(path, removes)| {
        let within = |whole: &str| merge::declares(whole, &path);
        if within("status.pending") {
            return Some("the policy writes status.pending, which is the host's".into());
        }
        let condition = path.strip_prefix("status.conditions[");
        if condition.is_some_and(|kind| kind.starts_with(HOST_CONDITION)) {
            // A policy that replaces the whole list leaves out the conditions of the host. The host adds them again.
            return (!removes).then(|| format!("the policy writes {path}, which is the host's"));
        }
        if SERVER_OWNED.iter().any(|owned| within(owned)) {
            return Some(format!("the policy writes {path}, which is the API server's"));
        }
        if own.as_deref() == Some(&path) {
            return None;
        }
        if is_guarded(&path) && !writes_guarded(&binding.spec, &path) {
            return Some(format!("the policy writes {path}, which no grant `write` names"));
        }
        if !covered(&policy.manifest.writes, &path) {
            return Some(format!(
                "the policy writes {path}, which its manifest does not declare"
            ));
        }
        let excluded = narrowed.is_some_and(|narrowed| !covered(narrowed, &path));
        excluded.then(|| format!("the policy writes {path}, which its binding leaves out of `writes`"))
    })
}

/// Whether a path of the primary decides if the object continues to exist.
pub(super) fn is_guarded(path: &str) -> bool {
    let field = path.strip_prefix("metadata.");
    field.is_some_and(|path| GUARDED_METADATA.iter().any(|field| merge::declares(field, path)))
}

pub(super) fn writes_guarded(spec: &BindingSpec, path: &str) -> bool {
    let named = |grant: &Grant| match grant {
        Grant::Write(paths) => paths
            .iter()
            .any(|granted| is_guarded(granted) && merge::declares(granted, path)),
        _ => false,
    };
    spec.grants.iter().any(named)
}

/// The path of a finalizer that a policy names as its own.
pub(super) fn own_finalizer(name: &str) -> String {
    format!("metadata.finalizers[{name}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use crate::reconcile::fixture_binding;
    use serde_json::json;

    /// Whether a lifecycle policy with these grants may conclude with this patch of its Machine.
    fn may_write(grants: Value, narrowed: Option<Value>, patch: &Value) -> bool {
        let grants: Vec<Grant> = serde_json::from_value(grants).expect("grants");
        let mut binding = fixture_binding(&[Role::Lifecycle]).with_grants(grants);
        let policy = binding.policies.get_mut(&Role::Lifecycle).expect("a policy");
        let writes = [
            "status",
            "metadata.labels",
            "metadata.ownerReferences",
            "metadata.finalizers[a/b]",
        ];
        Arc::make_mut(&mut policy.manifest).writes = writes.map(str::to_owned).to_vec();
        if let Some(writes) = narrowed {
            let source = json!({"lifecycle": {"file": "x", "writes": writes}});
            binding.spec.policies = serde_json::from_value(source).expect("policies");
        }
        let snapshot = json!({"metadata": {"name": "m", "finalizers": ["c/d"]}});
        let edits = Edits::of(&Object::new(snapshot), patch.clone().into(), 0);
        check_writes(&binding, Role::Lifecycle, &edits).is_none()
    }

    #[test]
    fn a_conclusion_writes_what_its_manifest_declares_and_nothing_that_is_of_others() {
        let owner = json!({"metadata": {"ownerReferences": [{"uid": "o"}]}});
        let finalizer = |name: &str| json!({"metadata": {"finalizers": ["c/d", name]}});
        let granted = || json!([{"write": ["metadata.ownerReferences", "metadata.finalizers", "spec"]}]);
        for (grants, patch, may) in [
            (json!([]), json!({"status": {"phase": "x"}}), true),
            (json!([]), json!({"spec": {"x": 1}}), false),
            (granted(), json!({"spec": {"x": 1}}), false),
            (json!([]), json!({"status": {"pending": []}}), false),
            (
                json!([]),
                json!({"status": {"conditions": [{"type": "polity.dev/X"}]}}),
                false,
            ),
            (
                json!([]),
                json!({"status": {"conditions": [{"type": "Ready"}]}}),
                true,
            ),
            (json!([]), json!({"kind": "Disk"}), false),
            (json!([]), json!({"metadata": {"uid": "x"}}), false),
            (json!([]), finalizer("example.com/machine"), true),
            (json!([]), finalizer("a/b"), false),
            (granted(), finalizer("a/b"), true),
            (granted(), finalizer("e/f"), false),
            (
                json!([{"write": ["metadata.ownerReferences"]}]),
                finalizer("a/b"),
                false,
            ),
            (json!([{"write": ["metadata"]}]), finalizer("a/b"), false),
            (json!([]), owner.clone(), false),
            (granted(), owner, true),
        ] {
            assert_eq!(may_write(grants.clone(), None, &patch), may, "{grants} {patch}");
        }
        let phase = json!(["status.phase"]);
        assert!(may_write(
            json!([]),
            Some(phase.clone()),
            &json!({"status": {"phase": "x"}})
        ));
        assert!(!may_write(
            json!([]),
            Some(phase),
            &json!({"status": {"other": "x"}})
        ));
    }
}
