//! Bindings of `orbiter` and `orbiter-node-agent` with all grants that they need.

use serde_json::{Value, json};

/// The `apiVersion` of Orbs.
pub const ORBITER: &str = "orbiter.polity.dev/v1alpha1";

/// Governs Orbs by `orbiter`, with this configuration, and `mcm-retry` with that one.
pub fn orbs(configuration: Value, retry: Value) -> Value {
    let everywhere = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "namespaces": ["*"]});
    let (node, pod) = (everywhere("v1", "Node"), everywhere("v1", "Pod"));
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "orbs"},
        "spec": {
            "governs": {"apiVersion": ORBITER, "kind": "Orb"},
            "policies": {
                "lifecycle": {"file": "orbiter.wasm", "configuration": configuration},
                "retry": {"file": "mcm_retry.wasm", "configuration": retry},
            },
            "cloud": {"name": "sim"},
            "grants": [
                {"ask": node}, {"patch": node}, {"delete": node},
                {"ask": pod}, {"delete": pod}, {"evict": pod},
                {"ask": everywhere("policy/v1", "PodDisruptionBudget")},
                {"ask": everywhere("v1", "PersistentVolumeClaim")},
                {"ask": everywhere("storage.k8s.io/v1", "VolumeAttachment")},
                {"mint": ["bootstrap-token", "password"]},
                {"cloud": ["pool.*", "agent.install", "kubeadm.*", "task.get"]},
            ],
        },
    })
}

/// Governs one Node by its agent, with `mcm-retry` configured so.
pub fn agent(node: &str, retry: Value) -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": format!("agent-{node}")},
        "spec": {
            "governs": {"apiVersion": "v1", "kind": "Node", "name": node},
            "policies": {
                "lifecycle": {"file": "orbiter_node_agent.wasm", "configuration": {"node": node}},
                "retry": {"file": "mcm_retry.wasm", "configuration": retry},
            },
            "cloud": {"name": "sim"},
            "grants": [{"cloud": ["node.*"]}],
        },
    })
}
