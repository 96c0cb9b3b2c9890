//! The setting at the beginning: bindings, tenants, identities, classes and machines.

use polity::manifests::Manifests;
use serde_json::{Value, json};

use super::scenario::Workflow;
use super::{orb, routers};
use crate::host_harness::Site;
use crate::host_harness::capa::{self, CAPA};
use crate::host_harness::mcm::{self, MCM};
use crate::simulation::bindings::MACHINES as CAPV;

/// The tenant that the identity trusts.
pub const TRUSTED: &str = "trusted";
/// The tenant that it never trusts.
pub const SHUT: &str = "shut";
/// The tenant that it trusts as long as people allow it.
pub const SHIFTY: &str = "shifty";
/// Every tenant.
pub const TENANTS: [&str; 3] = [TRUSTED, SHUT, SHIFTY];
/// The label of trusted namespaces.
pub const TRUST: &str = "tenancy.example.com/trusted";
/// The AWSCluster of each namespace.
const CLUSTER: &str = "cluster";
/// The account of that cluster.
pub const ACCOUNT: &str = "222222222222";

/// The number of machines of the deployment, in [`TRUSTED`].
pub const WORKERS: usize = 3;
/// The number of pods of the workload, in [`TRUSTED`].
pub const PODS: usize = 3;
/// The number of these pods that must be healthy.
pub const HEALTHY: usize = 2;

/// Applies everything that these workflows need.
pub async fn prepare(site: &Site, workflows: &[Workflow]) {
    let (mut bindings, mut objects) = (Vec::new(), Vec::new());
    if workflows.iter().any(|workflow| workflow.has_tenants()) {
        objects.extend(tenants());
    }
    for workflow in workflows {
        match workflow {
            Workflow::Clusters => bindings.push(clusters()),
            Workflow::CapvMachines => {
                bindings.push(capv_machines());
                objects.extend(TENANTS.map(|tenant| capv_machine(tenant, "vm")));
            }
            Workflow::McmMachines => {
                bindings.extend([mcm_machines(), mcm::safeties(), mcm::classes()]);
                objects.extend([workload(), classes()].concat());
            }
            Workflow::Orb => {
                bindings.push(orb::orbs());
                objects.extend([workload(), vec![orb::object()]].concat());
            }
            Workflow::Routers => {
                bindings.push(routers::routers());
                objects.extend(routers::objects());
            }
        }
    }
    apply(site, bindings, objects).await;
}

/// Applies bindings, then objects.
///
/// # Panics
/// If the API server refuses one of them.
pub async fn apply(site: &Site, bindings: Vec<Value>, objects: Vec<Value>) {
    let manifests = Manifests {
        bindings,
        ..Manifests::default()
    };
    site.apply(&manifests).await;
    for object in objects {
        let applied = site.cluster.apply(&object).await;
        applied.unwrap_or_else(|failure| panic!("{failure}: {object}"));
    }
}

/// A binding.
pub fn binding(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": name}, "spec": spec})
}

fn identity() -> Value {
    json!({"file": "capa_identity.wasm", "configuration": {"autoCreateControllerIdentity": false}})
}

/// The binding of AWSClusters.
pub fn clusters() -> Value {
    binding(
        "clusters",
        &json!({
            "governs": {"apiVersion": CAPA, "kind": "AWSCluster"},
            "policies": {"identity": identity()},
            "cloud": {"name": "sim"}, "grants": capa::grants(),
        }),
    )
}

fn capv_machines() -> Value {
    let grants = [capa::grants(), vec![json!({"cloud": ["vm.*", "task.get"]})]].concat();
    binding(
        "capv-machines",
        &json!({
            "governs": {"apiVersion": CAPV, "kind": "Machine"},
            "policies": {
                "identity": identity(), "lifecycle": {"file": "capv_machine.wasm"},
                "retry": {"file": "backoff_retry.wasm"},
            },
            "cloud": {"name": "sim"}, "grants": grants,
        }),
    )
}

fn mcm_machines() -> Value {
    // Short periods, so that a scenario of minutes contains all of them.
    let configuration = json!({
        "creationTimeout": "6m", "healthTimeout": "2m", "drainTimeout": "8m", "podEvictionRetry": "10s",
    });
    let mut binding = mcm::machines(configuration);
    let spec = &mut binding["spec"];
    spec["policies"]["identity"] = identity();
    spec["policies"]["retry"]["configuration"] = json!({"medium": "30s", "long": "90s"});
    spec["grants"]
        .as_array_mut()
        .expect("a list of grants")
        .extend(capa::grants());
    binding
}

/// The Secret of the static identity.
pub fn access_key(secret: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "capa-system", "name": "access-key"},
        "stringData": {"AccessKeyID": "AKIAEXAMPLE", "SecretAccessKey": secret},
    })
}

/// A namespace, trusted or not.
pub fn namespace(name: &str, trusted: bool) -> Value {
    let labels = if trusted { json!({TRUST: "yes"}) } else { json!({}) };
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// An AWSCluster with the identity of its tenant.
pub fn cluster(namespace: &str, name: &str) -> Value {
    let identity = match namespace {
        TRUSTED => json!({"kind": "AWSClusterRoleIdentity", "name": "machines"}),
        _ => json!({"kind": "AWSClusterStaticIdentity", "name": "keys"}),
    };
    json!({
        "apiVersion": CAPA, "kind": "AWSCluster", "metadata": {"namespace": namespace, "name": name},
        "spec": {"identityRef": identity},
    })
}

/// A Machine of `capv-machine`.
pub fn capv_machine(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": CAPV, "kind": "Machine",
        "metadata": {
            "namespace": namespace, "name": name, "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
        },
        "spec": {
            "template": "ubuntu", "folder": namespace,
            "network": {"devices": [{"networkName": "net", "dhcp4": true}]},
        },
    })
}

/// A Machine of `mcm-machine`.
pub fn mcm_machine(namespace: &str, name: &str, deployment: &str) -> Value {
    let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER, "name": deployment});
    json!({
        "apiVersion": MCM, "kind": "Machine",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    })
}

/// All tenants with their clusters and identities.
pub fn tenants() -> Vec<Value> {
    let allowed = json!({"selector": {"matchLabels": {TRUST: "yes"}}});
    let identity = |kind: &str, name: &str, mut spec: Value| {
        spec["allowedNamespaces"] = allowed.clone();
        json!({"apiVersion": CAPA, "kind": kind, "metadata": {"name": name}, "spec": spec})
    };
    let role = json!({
        "roleARN": format!("arn:aws:iam::{ACCOUNT}:role/machines"),
        "sourceIdentityRef": {"kind": "AWSClusterStaticIdentity", "name": "keys"},
    });
    let mut objects = vec![
        namespace("capa-system", false),
        access_key("the first"),
        identity(
            "AWSClusterStaticIdentity",
            "keys",
            json!({"secretRef": {"name": "access-key"}}),
        ),
        identity("AWSClusterRoleIdentity", "machines", role),
    ];
    for tenant in TENANTS {
        objects.extend([namespace(tenant, tenant == TRUSTED), cluster(tenant, CLUSTER)]);
    }
    objects
}

/// The namespace of the workload, and its disruption budget.
fn workload() -> Vec<Value> {
    vec![
        namespace(TRUSTED, true),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": TRUSTED, "name": "web"},
            "spec": {"minAvailable": HEALTHY, "selector": {"matchLabels": {"app": "web"}}},
        }),
    ]
}

/// The classes of machines.
fn classes() -> Vec<Value> {
    let mut objects = vec![mcm::safety()];
    for tenant in TENANTS {
        objects.extend([
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": tenant, "name": "user-data"},
                "stringData": {"userData": "#cloud-config\nruncmd: []"},
            }),
            json!({
                "apiVersion": MCM, "kind": "MachineClass", "metadata": {"namespace": tenant, "name": "small"},
                "spec": {
                    "secretRef": {"name": "user-data"}, "providerSpec": {},
                    "nodeTemplate": {
                        "capacity": {"cpu": "2", "memory": "4Gi"}, "instanceType": "small", "region": "here", "zone": "a",
                    },
                },
            }),
        ]);
    }
    objects
}
