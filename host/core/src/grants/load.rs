//! What stops a policy from being loaded into a binding.

use serde_json::Value;

use super::guarded::{is_guarded, writes_guarded};
use super::{covers, is_closed, is_wellformed};
use crate::binding::{BindingSpec, Grant, KindGrant, MintGrant};
use crate::catalogue::{Catalogue, OperationEffect};
use crate::contract::{Kind, Manifest, Need};

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
    let mints = spec.grants.iter().filter_map(|grant| match grant {
        Grant::Mint(kinds) => Some(kinds),
        _ => None,
    });
    for group in mints.flatten().flat_map(MintGrant::groups) {
        if !is_bootstrap_group(group) {
            wrong.push(format!(
                "spec.grants: mint: {group:?} is no group of bootstrap tokens: \
                 system:bootstrappers:NAME, of small letters, digits, `:` and `-`"
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

pub(super) fn own_finalizer(name: &str) -> String {
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

/// Whether an API server takes a bootstrap token that names this group: it takes none that names another.
///
/// Source: `BootstrapGroupPattern` in `k8s.io/cluster-bootstrap/token/api`.
fn is_bootstrap_group(group: &str) -> bool {
    let Some(name) = group.strip_prefix("system:bootstrappers:") else {
        return false;
    };
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = |byte: u8| is_word(byte) || matches!(byte, b':' | b'-');
    name.len() <= 256 && name.bytes().all(fits) && name.bytes().last().is_some_and(is_word)
}

fn is_granted(spec: &BindingSpec, need: &Need) -> bool {
    let kind_is = |grant: &KindGrant, kind: &Kind| grant.kind() == *kind;
    spec.grants.iter().any(|grant| match (grant, need) {
        (Grant::Ask(g), Need::Objects(kind))
        | (Grant::Create(g), Need::Create(kind))
        | (Grant::Patch(g), Need::Patch(kind))
        | (Grant::Delete(g), Need::Delete(kind)) => kind_is(g, kind),
        (Grant::Secrets(_), Need::Secrets) | (Grant::Evict(_), Need::Evict) => true,
        (Grant::Cloud(names), Need::Cloud(name)) | (Grant::Lock(names), Need::Lock(name)) => {
            names.iter().any(|granted| covers(granted, name))
        }
        (Grant::Credential(granted), Need::Credential) => *granted,
        (Grant::Reachable(granted), Need::Reachable) => *granted,
        (Grant::Mint(kinds), Need::Mint(kind)) => kinds.iter().any(|grant| grant.kind() == kind),
        _ => false,
    })
}

fn describe(need: &Need) -> String {
    match need {
        Need::Objects(kind) => format!("ask {}", kind.kind),
        Need::Secrets => "secrets".into(),
        Need::Cloud(name) => format!("cloud {name}"),
        Need::Lock(name) => format!("lock {name}"),
        Need::Credential => "credential".into(),
        Need::Create(kind) => format!("create {}", kind.kind),
        Need::Patch(kind) => format!("patch {}", kind.kind),
        Need::Delete(kind) => format!("delete {}", kind.kind),
        Need::Evict => "evict".into(),
        Need::Mint(kind) => format!("mint {kind}"),
        Need::Reachable => "reachable".into(),
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

    #[test]
    fn bootstrap_tokens_name_groups_that_api_servers_take() {
        let longest = format!("system:bootstrappers:{}", "a".repeat(256));
        for (group, fits) in [
            ("system:bootstrappers:workers:of-a-team", true),
            (longest.as_str(), true),
            (&format!("{longest}a"), false),
            ("system:bootstrappers:", false),
            ("system:bootstrappers:a-", false),
            ("system:bootstrappers:A", false),
            ("system:bootstrappers:a,system:masters", false),
            ("system:masters", false),
        ] {
            assert_eq!(is_bootstrap_group(group), fits, "{group}");
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
}
