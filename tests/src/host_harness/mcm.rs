//! Bindings of `mcm-machine`, `mcm-machineclass`, `mcm-machineset` and `mcm-safety` with all grants that they need, and the
//! objects that a machine is made from.

use serde_json::{Value, json};

/// The `apiVersion` of the kinds.
pub const MCM: &str = "mcm.polity.dev/v1alpha1";
/// The deployment that the machines belong to.
pub const DEPLOYMENT: &str = "workers";

/// Governs Machines by `mcm-machine`, with this configuration, and `mcm-retry`.
pub fn machines(configuration: Value) -> Value {
    let everywhere = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "namespaces": ["*"]});
    let own = |kind: &str| json!({"apiVersion": MCM, "kind": kind});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "relation": {"theirs": "spec.providerID", "ours": "status.providerID"},
    });
    let (pod, attachment) = (
        everywhere("v1", "Pod"),
        everywhere("storage.k8s.io/v1", "VolumeAttachment"),
    );
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "machines"},
        "spec": {
            "governs": own("Machine"),
            "policies": {
                "lifecycle": {"file": "mcm_machine.wasm", "configuration": configuration},
                "retry": {"file": "mcm_retry.wasm"},
            },
            "cloud": {"name": "sim"},
            "grants": [
                {"ask": own("MachineClass")}, {"ask": own("Machine")},
                {"ask": {"apiVersion": MCM, "kind": "MachineSafety", "name": "default"}},
                {"ask": node}, {"patch": node}, {"delete": node},
                {"ask": pod}, {"delete": pod}, {"evict": pod},
                {"ask": everywhere("policy/v1", "PodDisruptionBudget")},
                {"ask": everywhere("v1", "PersistentVolumeClaim")}, {"ask": everywhere("v1", "PersistentVolume")},
                {"ask": attachment}, {"delete": attachment},
                {"secrets": {}}, {"lock": ["deployment/*"]}, {"mint": ["bootstrap-token"]},
                {"cloud": ["machine.*"]},
            ],
        },
    })
}

/// Governs MachineClasses by `mcm-machineclass`.
pub fn classes() -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "classes"},
        "spec": {
            "governs": {"apiVersion": MCM, "kind": "MachineClass"},
            "policies": {"lifecycle": {"file": "mcm_machineclass.wasm"}},
            "grants": [{"ask": {"apiVersion": MCM, "kind": "Machine", "fields": ["spec.class"]}}],
        },
    })
}

/// Governs MachineSets by `mcm-machineset`.
pub fn sets() -> Value {
    let machine = json!({"apiVersion": MCM, "kind": "Machine"});
    let owned = json!({"apiVersion": MCM, "kind": "Machine", "metadata": ["ownerReferences"]});
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "sets"},
        "spec": {
            "governs": {"apiVersion": MCM, "kind": "MachineSet"},
            "policies": {
                "lifecycle": {"file": "mcm_machineset.wasm"},
                "retry": {"file": "mcm_retry.wasm"},
            },
            "grants": [{"ask": machine}, {"create": machine}, {"patch": owned}, {"delete": machine}],
        },
    })
}

/// A MachineSet of so many machines of the deployment.
pub fn set(name: &str, replicas: u32) -> Value {
    let labels = json!({"name": DEPLOYMENT});
    json!({
        "apiVersion": MCM, "kind": "MachineSet", "metadata": {"namespace": "default", "name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"class": {"kind": "MachineClass", "name": "small"}},
            },
        },
    })
}

/// Governs the MachineSafety by `mcm-safety`.
pub fn safeties() -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "safety"},
        "spec": {
            "governs": {"apiVersion": MCM, "kind": "MachineSafety"},
            "policies": {"lifecycle": {"file": "mcm_safety.wasm"}},
            "grants": [{"reachable": true}],
        },
    })
}

/// The same, and it looks for orphans as this configuration says, and may delete them.
pub fn sweeps(configuration: Value) -> Value {
    let mut binding = safeties();
    let machines = json!({"apiVersion": MCM, "kind": "Machine", "namespaces": ["default"]});
    let spec = &mut binding["spec"];
    spec["policies"]["lifecycle"]["configuration"] = configuration;
    spec["cloud"] = json!({"name": "sim"});
    spec["tenant"] = json!({"path": "spec.namespace"});
    spec["grants"] = json!([
        {"reachable": true}, {"ask": machines}, {"cloud": ["machine.list", "orphan.delete"]},
    ]);
    binding
}

/// The MachineSafety that the machines look for.
pub fn safety() -> Value {
    json!({"apiVersion": MCM, "kind": "MachineSafety", "metadata": {"name": "default"}, "spec": {}})
}

/// A Machine of the deployment.
pub fn machine(name: &str) -> Value {
    json!({
        "apiVersion": MCM, "kind": "Machine",
        "metadata": {"namespace": "default", "name": name, "labels": {"name": DEPLOYMENT}},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    })
}

/// The class of the machines.
pub fn class() -> Value {
    json!({
        "apiVersion": MCM, "kind": "MachineClass", "metadata": {"namespace": "default", "name": "small"},
        "spec": {
            "secretRef": {"name": "user-data"}, "providerSpec": {},
            "nodeTemplate": {
                "capacity": {"cpu": "2", "memory": "4Gi"}, "instanceType": "small", "region": "here", "zone": "a",
            },
        },
    })
}

/// The Secret of the class.
pub fn user_data(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "user-data"},
        "stringData": {"userData": text},
    })
}
