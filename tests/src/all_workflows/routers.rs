//! Routers, and the people who change them.

use polity_core::contract::ObjectRef;
use serde_json::{Value, json};

use super::setting::reference;
use crate::host_harness::Site;
use crate::host_harness::rug::{self, RUG};

/// Where they stand.
pub const NAMESPACE: &str = "networks";
/// Their names.
pub const NAMES: [&str; 2] = ["r-1", "r-2"];

/// What people do to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// They want it to have so many networks.
    Ports(u64),
    /// They want another flavor.
    Flavor,
    /// They ask for its traffic.
    Read,
    /// They ask for another VM.
    Rebuild,
    /// The same, with another image.
    RebuildFrom(&'static str),
    /// They delete it.
    Delete,
    /// They create it.
    Create,
}

/// Governs Routers by `rug-router`, with a retry policy.
pub fn routers() -> Value {
    let mut binding = rug::binding(json!({}));
    binding["spec"]["policies"]["retry"] = json!({"file": "backoff_retry.wasm"});
    binding
}

/// A router with so many networks, each port of which is its own.
pub fn router(name: &str, networks: u64) -> Value {
    json!({
        "apiVersion": RUG, "kind": "Router", "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"imageUUID": "image-1", "flavor": "small", "ports": ports(name, networks)},
    })
}

fn ports(name: &str, networks: u64) -> Value {
    let of = NAMES.iter().position(|known| *known == name).unwrap_or_default();
    let port = |network: u64| json!({"network": format!("net-{network}"), "mac": format!("fa:16:3e:00:{of:02}:{network:02}")});
    (1..=networks).map(port).collect()
}

/// What there is on the first day.
pub fn objects() -> Vec<Value> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let routers = NAMES.iter().map(|name| router(name, 1));
    std::iter::once(namespace).chain(routers).collect()
}

/// Somebody does something. What the API server refuses, they let be.
pub async fn act(site: &Site, name: &str, deed: Deed, nth: u64) {
    let router = named(name);
    match deed {
        Deed::Ports(networks) => edit(site, &router, json!({"ports": ports(name, networks)})).await,
        Deed::Flavor => edit(site, &router, json!({"flavor": format!("size-{nth}")})).await,
        Deed::Read => annotate(site, &router, json!({"request.polity.dev/read": nth.to_string()})).await,
        Deed::Rebuild => {
            annotate(
                site,
                &router,
                json!({"request.polity.dev/rebuild": nth.to_string()}),
            )
            .await;
        }
        Deed::RebuildFrom(image) => {
            let wanted =
                json!({"rug.polity.dev/rebuild-image": image, "request.polity.dev/rebuild": nth.to_string()});
            annotate(site, &router, wanted).await;
        }
        Deed::Delete => {
            let _ = site.delete(&router, None).await;
        }
        Deed::Create => {
            let _ = site.cluster.apply(&self::router(name, 2)).await;
        }
    }
}

/// Whether its VM was given up, and nobody has asked for anything since.
pub fn is_given_up(router: &Value) -> bool {
    let (status, asked) = (&router["status"], &router["metadata"]["annotations"]);
    status["vm"] == "E" && asked["request.polity.dev/read"] == status["readRequest"]
}

async fn edit(site: &Site, router: &ObjectRef, spec: Value) {
    let _ = site.patch(router, None, json!({"spec": spec})).await;
}

async fn annotate(site: &Site, router: &ObjectRef, annotations: Value) {
    let patch = json!({"metadata": {"annotations": annotations}});
    let _ = site.patch(router, None, patch).await;
}

fn named(name: &str) -> ObjectRef {
    reference(RUG, "Router", Some(NAMESPACE), name)
}
