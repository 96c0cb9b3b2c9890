//! The bindings of the simulated world.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_core::binding::{
    Binding, BindingSpec, CloudRef, Governs, Grant, KindGrant, Limits, LoadedPolicy, Policies, PolicyId,
    Tenant,
};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Kind, Manifest, Need, Role};
use polity_core::grants::Grants;
use serde_json::json;

/// The `apiVersion` of Machines.
pub const MACHINES: &str = "capv.polity.dev/v1alpha1";
/// The `apiVersion` of Widgets.
pub const WIDGETS: &str = "widgets.example.com/v1";

/// The finalizer that capv-machine names.
pub const FINALIZER: &str = "capv.polity.dev/machine";

/// A manifest that declares these needs and writes.
pub fn manifest(name: &str, role: Role, needs: Vec<Need>, writes: &[&str]) -> Manifest {
    Manifest {
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        role,
        governs: Vec::new(),
        needs,
        writes: writes.iter().map(|w| (*w).to_owned()).collect(),
        config_schema: json!({}),
        finalizer: None,
        crd: None,
        edges: Vec::new(),
    }
}

/// A native policy as loaded.
pub fn native(manifest: Manifest) -> LoadedPolicy {
    LoadedPolicy {
        id: PolicyId(manifest.name.as_str().into()),
        manifest: Arc::new(manifest),
        config: "{}".into(),
    }
}

/// A binding of one kind with these policies and grants.
pub fn binding(
    name: &str,
    (api_version, kind): (&str, &str),
    policies: impl IntoIterator<Item = LoadedPolicy>,
    grants: Vec<Grant>,
    catalogue: Arc<Catalogue>,
) -> Binding {
    let policies: BTreeMap<Role, LoadedPolicy> = policies.into_iter().map(|p| (p.manifest.role, p)).collect();
    Binding {
        name: name.to_owned(),
        digest: "".into(),
        created: 0,
        grants: Grants::compile(&grants).into(),
        namespaces: None,
        connection: "".into(),
        spec: BindingSpec {
            governs: Governs {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                namespace: None,
                name: None,
            },
            policies: Policies::default(),
            cloud: Some(CloudRef {
                name: "sim".to_owned(),
                configuration: None,
            }),
            tenant: Tenant::Namespace,
            grants,
            crds: Vec::new(),
            limits: Limits::default(),
        },
        policies,
        catalogue,
    }
}

/// Widgets, which look at ConfigMaps of their namespace.
pub fn widgets() -> Binding {
    let map = Kind {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
    };
    let needs = vec![Need::Objects(map)];
    let policy = native(manifest("widget", Role::Lifecycle, needs, &["status"]));
    binding(
        "widgets",
        (WIDGETS, "Widget"),
        [policy],
        vec![Grant::Ask(kind("v1", "ConfigMap"))],
        Arc::default(),
    )
}

/// A native policy for Machines, named `machine`, with the manifest of one that creates.
pub fn native_machine() -> LoadedPolicy {
    let status = json!({"properties": {"pending": {"type": "array"}, "conditions": {"type": "array"}}});
    let needs = vec![Need::Cloud("vm.*".into()), Need::Cloud("task.*".into())];
    native(Manifest {
        finalizer: Some(FINALIZER.to_owned()),
        crd: Some(
            json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"status": status}}}}]}}),
        ),
        ..manifest(
            "machine",
            Role::Lifecycle,
            needs,
            &["metadata.finalizers", "status"],
        )
    })
}

/// Machines, which use the cloud.
pub fn machines(policy: LoadedPolicy, catalogue: Arc<Catalogue>) -> Binding {
    let grants = vec![Grant::Cloud(vec!["vm.*".to_owned(), "task.*".to_owned()])];
    binding("machines", (MACHINES, "Machine"), [policy], grants, catalogue)
}

/// A grant of a kind in the primary's own namespace.
pub fn kind(api_version: &str, kind: &str) -> KindGrant {
    KindGrant {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespaces: None,
        name: None,
        relation: None,
        fields: None,
        subresources: None,
        metadata: None,
    }
}
