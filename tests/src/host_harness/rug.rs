//! A binding of `rug-router` with all grants that it needs, and a router.

use polity_core::call::{CloudRequest, Session};
use polity_sim::RouterView;
use serde_json::{Value, json};

use super::Site;

/// The `apiVersion` of the kind.
pub const RUG: &str = "rug.polity.dev/v1alpha1";

/// Governs Routers by `rug-router`, with this configuration. What boots is looked at every second, in two passes.
pub fn binding(configuration: Value) -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "routers"},
        "spec": {
            "governs": {"apiVersion": RUG, "kind": "Router"},
            "policies": {"lifecycle": {"file": "rug_router.wasm", "configuration": configuration}},
            "cloud": {"name": "sim"},
            "grants": [{"cloud": ["router.*", "port.*", "image.get", "config.push", "task.get"]}],
            "limits": {"refill": 500},
        },
    })
}

/// A port of a network of its own.
pub fn port(number: u32) -> Value {
    json!({"network": format!("net-{number}"), "mac": mac(number)})
}

/// Its MAC address.
pub fn mac(number: u32) -> String {
    format!("fa:16:3e:00:00:{number:02}")
}

/// These ports.
pub fn ports(numbers: &[u32]) -> Value {
    numbers.iter().copied().map(port).collect()
}

/// A router of this name with these ports.
pub fn router(name: &str, numbers: &[u32]) -> Value {
    json!({
        "apiVersion": RUG, "kind": "Router", "metadata": {"namespace": "default", "name": name},
        "spec": {"imageUUID": "image-1", "flavor": "small", "ports": ports(numbers)},
    })
}

/// Somebody removes a VM without asking Polity.
///
/// # Panics
/// If the cloud refuses it.
pub fn remove(site: &Site, vm: &RouterView) {
    let request = CloudRequest {
        session: Session {
            cloud: "sim".to_owned(),
            handle: None,
            owner: vm.owner.clone(),
            tenant: vm.tenant.clone(),
            tenant_queue: "".into(),
            namespace: None,
        },
        operation: "router.delete".to_owned(),
        arguments: json!({"id": vm.id}),
        key: None,
    };
    let answer = site.inspect(|sim, now| sim.perform(now, &request).answer);
    assert!(matches!(answer, Some(Ok(_))), "{answer:?}");
}
