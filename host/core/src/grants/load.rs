//! Checks whether a policy may be loaded into a binding.

use polity_kube_rules::names::qualified_name_problem;
use serde_json::Value;

use super::compiled::{covers, is_closed};
use super::guarded::{HOST_CONDITION, is_guarded, own_finalizer, writes_guarded};
use crate::binding::{BindingSpec, Grant, KindGrant, MintGrant};
use crate::catalogue::{Catalogue, OperationEffect};
use crate::contract::{Kind, Manifest, Need};

/// The reasons why a policy cannot be loaded into a binding; empty if there are none. `manifest` is that of the
/// policy, `others` are those of the other roles of the binding.
pub fn check_load(
    spec: &BindingSpec,
    catalogue: &Catalogue,
    manifest: &Manifest,
    others: &[&Manifest],
) -> Vec<String> {
    let mut wrong = Vec::new();
    wrong.extend(closed_kind(spec));
    wrong.extend(another_kind(spec, manifest));
    wrong.extend(needs_without_grant(spec, manifest));
    wrong.extend(needs_without_cloud(spec, manifest));
    wrong.extend(groups_of_others(spec));
    wrong.extend(guarded_writes(spec, manifest));
    wrong.extend(finalizer_of_others(manifest));
    wrong.extend(others.iter().flat_map(|other| shared_writes(manifest, other)));
    wrong.extend(no_place_for_entries(catalogue, manifest));
    wrong
}

/// A binding governs no kind that is closed to policies.
fn closed_kind(spec: &BindingSpec) -> Option<String> {
    let governed = spec.governs.kind();
    is_closed(&governed).then(|| {
        let Kind { api_version, kind } = governed;
        format!("spec.governs: {kind} of {api_version} cannot be governed")
    })
}

/// A policy that names kinds governs no other kind.
fn another_kind(spec: &BindingSpec, manifest: &Manifest) -> Option<String> {
    let governed = spec.governs.kind();
    let is_governed = manifest.governs.is_empty() || manifest.governs.contains(&governed);
    (!is_governed).then(|| {
        let Kind { api_version, kind } = governed;
        format!("{} does not govern {kind} of {api_version}", manifest.name)
    })
}

/// Each need of a policy has a grant.
fn needs_without_grant(spec: &BindingSpec, manifest: &Manifest) -> impl Iterator<Item = String> {
    let missing = manifest.needs.iter().filter(move |need| !is_granted(spec, need));
    missing.map(move |need| {
        let need = describe(need);
        format!("{} needs {need}, which spec.grants does not grant", manifest.name)
    })
}

/// A policy that needs a cloud has one.
fn needs_without_cloud(spec: &BindingSpec, manifest: &Manifest) -> Option<String> {
    let is_of_cloud = |need: &&Need| matches!(need, Need::Cloud(_) | Need::Credential);
    let need = manifest
        .needs
        .iter()
        .find(is_of_cloud)
        .filter(|_| spec.cloud.is_none())?;
    let need = describe(need);
    let hint = "name a cloud in spec.cloud.name";
    Some(format!(
        "{} needs {need}, but the binding has no cloud: {hint}",
        manifest.name
    ))
}

/// Bootstrap tokens are granted for groups that bootstrap tokens can have.
fn groups_of_others(spec: &BindingSpec) -> impl Iterator<Item = String> {
    let mints = spec.grants.iter().filter_map(|grant| match grant {
        Grant::Mint(kinds) => Some(kinds),
        _ => None,
    });
    let groups = mints.flatten().flat_map(MintGrant::groups);
    groups.filter(|group| !is_bootstrap_group(group)).map(|group| {
        format!(
            "spec.grants: mint: {group:?} is not a group of bootstrap tokens: \
             use system:bootstrappers:NAME with lower-case letters, digits, `:` and `-`"
        )
    })
}

/// A policy writes a guarded path only with a grant, unless the binding leaves the path out.
fn guarded_writes(spec: &BindingSpec, manifest: &Manifest) -> impl Iterator<Item = String> {
    let (name, role) = (&manifest.name, manifest.role.as_str());
    let guarded = manifest.writes.iter().filter(|path| is_guarded(path));
    let refused = guarded.filter(move |path| {
        !means_own_finalizer(manifest, path)
            && !is_left_out(spec, manifest, path)
            && !writes_guarded(spec, path)
    });
    refused.map(move |path| {
        format!(
            "{name} writes {path}: spec.grants needs `write: [{path}]`, or spec.policies.{role}.writes leaves it out"
        )
    })
}

/// Whether a path of a manifest means the policy's own finalizer, which it writes without a grant. A manifest that
/// declares all finalizers means its own.
fn means_own_finalizer(manifest: &Manifest, path: &str) -> bool {
    let own = manifest.finalizer.as_deref().map(own_finalizer);
    path == "metadata.finalizers" || own.as_deref() == Some(path)
}

/// Whether the binding narrows the writes of a policy to others than this path.
fn is_left_out(spec: &BindingSpec, manifest: &Manifest, path: &str) -> bool {
    let source = spec.policies.source(manifest.role);
    let narrowed = source.and_then(|source| source.writes.as_ref());
    narrowed.is_some_and(|narrowed| !narrowed.iter().any(|kept| overlap(kept, path)))
}

/// A policy has a finalizer of its own.
fn finalizer_of_others(manifest: &Manifest) -> Option<String> {
    let finalizer = manifest.finalizer.as_deref()?;
    (!is_own_finalizer(finalizer)).then(|| {
        format!(
            "{} has the finalizer {finalizer:?}: a finalizer needs a qualified name, `domain/name`, that belongs neither to Kubernetes nor to the host",
            manifest.name
        )
    })
}

/// Two policies of a binding write different paths.
fn shared_writes(one: &Manifest, other: &Manifest) -> impl Iterator<Item = String> {
    let is_shared = move |path: &&String| other.writes.iter().any(|theirs| overlap(path, theirs));
    let shared = one.writes.iter().filter(is_shared);
    shared.map(move |path| format!("{} and {} both write {path}", one.name, other.name))
}

/// The kind of a policy that creates has a list for the entries of its creates.
fn no_place_for_entries(catalogue: &Catalogue, manifest: &Manifest) -> Option<String> {
    let lacks_place = creates(catalogue, manifest) && !manifest.crds().any(has_pending);
    lacks_place.then(|| {
        format!(
            "{} creates cloud resources, but its kind has no list status.pending for their entries",
            manifest.name
        )
    })
}

/// Whether a policy may use this finalizer as its own. Finalizers of Kubernetes protect volumes, namespaces and
/// dependents; those of the host, `polity.dev/…`, protect connections.
/// Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>.
fn is_own_finalizer(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else {
        return false;
    };
    let kubernetes = |suffix: &str| domain == suffix || domain.ends_with(&format!(".{suffix}"));
    // What no API server accepts would fail every first act.
    qualified_name_problem(name).is_none()
        && !name.starts_with(HOST_CONDITION)
        && !(kubernetes("kubernetes.io") || kubernetes("k8s.io") && !domain.ends_with(".x-k8s.io"))
}

fn has_pending(crd: &Value) -> bool {
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.any(keeps_pending)
}

/// Whether a version of a CRD has entries in `status.pending`.
fn keeps_pending(version: &Value) -> bool {
    let keeps_all = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
    let schema = &version["schema"]["openAPIV3Schema"];
    let status = &schema["properties"]["status"];
    let pending = &status["properties"]["pending"];
    if pending.is_object() {
        pending["type"] == "array" || keeps_all(pending)
    } else {
        keeps_all(status) || (status.is_null() && keeps_all(schema))
    }
}

/// Why the CRD in the cluster does not fit a policy that creates. An API server drops fields that are not in the CRD,
/// whatever the CRD in the manifest of the policy says.
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
            "{} creates cloud resources, but the CustomResourceDefinition {} in the cluster has no list status.pending for their entries: \
             apply the one of the policy (`polity crds` prints it)",
            manifest.name,
            crd["metadata"]["name"].as_str().unwrap_or_default()
        )
    })
}

/// Whether a policy needs operations that create something.
fn creates(catalogue: &Catalogue, manifest: &Manifest) -> bool {
    manifest.needs.iter().any(|need| match need {
        Need::Cloud(name) => catalogue
            .operations
            .iter()
            .any(|(operation, o)| covers(name, operation) && o.effect == OperationEffect::Create),
        _ => false,
    })
}

/// Whether an API server accepts a bootstrap token with this group.
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

/// Whether two declared write paths can concern the same value. Elements with different keys (`conditions[Ready]`)
/// differ.
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
    use crate::reconcile::fixture_binding;
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
        for (properties, keeps) in [(json!({}), true), (json!({"status": {"type": "object"}}), false)] {
            let schema = json!({"x-kubernetes-preserve-unknown-fields": true, "properties": properties});
            let version = json!({"schema": {"openAPIV3Schema": schema}});
            assert_eq!(keeps_pending(&version), keeps, "{version}");
        }
    }

    fn manifest(rest: Value) -> Manifest {
        let mut manifest = json!({"name": "p", "version": "1", "role": "lifecycle"});
        crate::merge::apply(&rest, &mut manifest);
        serde_json::from_value(manifest).expect("a manifest")
    }

    fn spec(grants: Value) -> BindingSpec {
        let grants: Vec<Grant> = serde_json::from_value(grants).expect("grants");
        fixture_binding(&[]).with_grants(grants).spec
    }

    /// The number of reasons why a policy cannot be loaded.
    fn wrong(spec: &BindingSpec, rest: Value) -> usize {
        check_load(spec, &fixture_binding(&[]).catalogue, &manifest(rest), &[]).len()
    }

    #[test]
    fn each_need_takes_a_grant_of_its_own_sort() {
        let kind = |name: &str| json!({"apiVersion": "v1", "kind": name});
        let all = [
            (json!({"objects": kind("Pod")}), json!({"ask": kind("Pod")})),
            (json!({"create": kind("Pod")}), json!({"create": kind("Pod")})),
            (json!({"patch": kind("Pod")}), json!({"patch": kind("Pod")})),
            (json!({"delete": kind("Pod")}), json!({"delete": kind("Pod")})),
            (json!("secrets"), json!({"secrets": {}})),
            (json!("evict"), json!({"evict": kind("Pod")})),
            (json!({"cloud": "vm.stop"}), json!({"cloud": ["vm.*"]})),
            (json!({"lock": "one"}), json!({"lock": ["one"]})),
            (json!("credential"), json!({"credential": true})),
            (json!({"mint": "password"}), json!({"mint": ["password"]})),
            (json!("reachable"), json!({"reachable": true})),
        ];
        for (need, own) in &all {
            for (_, grant) in &all {
                let told = wrong(&spec(json!([grant])), json!({"needs": [need]}));
                assert_eq!(told, usize::from(grant != own), "{need} {grant}");
            }
        }
        for (need, grant) in [
            (json!({"objects": kind("Pod")}), json!({"ask": kind("Node")})),
            (json!({"cloud": "disk.stop"}), json!({"cloud": ["vm.*"]})),
            (json!({"mint": "password"}), json!({"mint": ["bootstrap-token"]})),
            (json!("credential"), json!({"credential": false})),
            (json!("reachable"), json!({"reachable": false})),
        ] {
            assert_eq!(
                wrong(&spec(json!([grant])), json!({"needs": [need]})),
                1,
                "{need} {grant}"
            );
        }
    }

    #[test]
    fn a_policy_governs_what_its_binding_names_unless_that_is_closed() {
        let kinds = |kind: &str| json!({"governs": [{"apiVersion": "example.com/v1", "kind": kind}]});
        assert_eq!(wrong(&spec(json!([])), json!({})), 0);
        assert_eq!(wrong(&spec(json!([])), kinds("Machine")), 0);
        assert_eq!(wrong(&spec(json!([])), kinds("Disk")), 1);
        let mut closed = spec(json!([]));
        closed.governs.api_version = "rbac.authorization.k8s.io/v1".into();
        assert_eq!(wrong(&closed, json!({})), 1);
        let groups = json!([{"mint": [{"kind": "bootstrap-token", "groups": ["system:masters"]}]}]);
        assert_eq!(wrong(&spec(groups), json!({})), 1);
    }

    #[test]
    fn guarded_paths_are_written_by_a_grant_or_left_out_by_the_binding() {
        let finalizer = "example.com/own";
        let told = |grants: Value, narrowed: Option<&str>, path: &str| {
            let mut spec = spec(grants);
            if let Some(narrowed) = narrowed {
                let source = json!({"lifecycle": {"file": "x", "writes": [narrowed]}});
                spec.policies = serde_json::from_value(source).expect("policies");
            }
            wrong(&spec, json!({"writes": ["status", path], "finalizer": finalizer}))
        };
        let granted = json!([{"write": ["metadata.ownerReferences"]}]);
        for (path, without) in [
            ("metadata.labels", 0),
            ("metadata.finalizers", 0),
            ("metadata.finalizers[example.com/own]", 0),
            ("metadata.finalizers[example.com/other]", 1),
            ("metadata.ownerReferences", 1),
        ] {
            assert_eq!(told(json!([]), None, path), without, "{path}");
            assert_eq!(told(json!([]), Some("status"), path), 0, "{path} is left out");
            assert_eq!(told(json!([]), Some(path), path), without, "{path} is left");
        }
        assert_eq!(told(granted, None, "metadata.ownerReferences"), 0);
    }

    #[test]
    fn a_finalizer_is_qualified_and_none_of_kubernetes() {
        let long = format!("example.com/{}", "x".repeat(64));
        for (name, is_own) in [
            ("example.com/machine", true),
            ("machine", false),
            ("/machine", false),
            ("example.com/", false),
            (&long[..75], true),
            (&long, false),
            ("Example.com/machine", false),
            ("example.com/machine-", false),
            ("example.com/a:b", false),
            ("kubernetes.io/pv-protection", false),
            ("volume.kubernetes.io/x", false),
            ("k8s.io/x", false),
            ("apps.k8s.io/x", false),
            ("cluster.x-k8s.io/x", true),
            ("notkubernetes.io/x", true),
            ("polity.dev/polity-system.polity", false),
            ("capv.polity.dev/x", true),
        ] {
            assert_eq!(is_own_finalizer(name), is_own, "{name}");
            let told = wrong(&spec(json!([])), json!({"finalizer": name}));
            assert_eq!(told, usize::from(!is_own), "{name}");
        }
    }

    #[test]
    fn a_policy_that_needs_a_cloud_or_credentials_takes_a_binding_with_a_cloud() {
        for (need, named) in [
            (json!("credential"), "credential"),
            (json!({"cloud": "vm.get"}), "cloud vm.get"),
        ] {
            let needs = manifest(json!({"needs": [need]}));
            let told = |cloud: bool| {
                let mut spec = spec(json!([{"credential": true}, {"cloud": ["vm.get"]}]));
                spec.cloud = spec.cloud.filter(|_| cloud);
                check_load(&spec, &Catalogue::default(), &needs, &[])
            };
            assert_eq!(told(true), [""; 0]);
            let name = &needs.name;
            let refused = format!(
                "{name} needs {named}, but the binding has no cloud: name a cloud in spec.cloud.name"
            );
            assert_eq!(told(false), [refused]);
        }
    }

    #[test]
    fn two_policies_of_a_binding_write_different_paths() {
        for (a, b, overlaps) in [
            ("status", "status.phase", true),
            ("status.phase", "status", true),
            ("status.phase", "status.phase", true),
            ("status.conditions", "status.conditions[Ready]", true),
            ("status.conditions[A]", "status.conditions[B]", false),
            ("status.phase", "status.phases", false),
        ] {
            let (one, other) = (manifest(json!({"writes": [a]})), manifest(json!({"writes": [b]})));
            let told = check_load(&spec(json!([])), &Catalogue::default(), &one, &[&other]);
            assert_eq!(told.len(), usize::from(overlaps), "{a} {b}");
        }
    }

    #[test]
    fn a_policy_that_creates_takes_a_definition_that_keeps_entries() {
        let crd = |version: &str, pending: &str| {
            let status = json!({"properties": {"pending": {"type": pending}}});
            let schema = json!({"openAPIV3Schema": {"properties": {"status": status}}});
            json!({"metadata": {"name": "machines"}, "spec": {"versions": [{"name": version, "schema": schema}]}})
        };
        let spec = spec(json!([{"cloud": ["vm.*"]}]));
        let catalogue = &fixture_binding(&[]).catalogue;
        for (need, version, pending, is_wrong) in [
            ("vm.clone", "v1", "array", false),
            ("vm.clone", "v1", "string", true),
            ("vm.*", "v1", "string", true),
            ("vm.stop", "v1", "string", false),
        ] {
            let needs = json!([{"cloud": need}]);
            let told = wrong(&spec, json!({"needs": needs, "crd": crd(version, pending)}));
            assert_eq!(told, usize::from(is_wrong), "{need} {pending}");
            let stands = crd(version, pending);
            let told = check_definition(&spec, catalogue, &manifest(json!({"needs": needs})), &stands);
            assert_eq!(told.is_some(), is_wrong, "{need} {pending}");
        }
        let creates = manifest(json!({"needs": [{"cloud": "vm.clone"}]}));
        let other = crd("v2", "string");
        assert_eq!(
            check_definition(&spec, catalogue, &creates, &other),
            None,
            "it is not served"
        );
    }
}
