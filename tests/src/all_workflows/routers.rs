//! Routers, and the people who change them.

use polity_core::contract::ObjectRef;
use serde_json::{Value, json};

use crate::host_fixture::reference;
use crate::host_harness::Site;
use crate::host_harness::rug::{self, RUG};

/// The namespace of the routers.
pub const NAMESPACE: &str = "networks";
/// The names of the routers.
pub const NAMES: [&str; 2] = ["r-1", "r-2"];

/// An action of people on a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// They want this many networks.
    Ports(u64),
    /// They want another flavor.
    Flavor,
    /// They request a read of the traffic.
    Read,
    /// They request a rebuild.
    Rebuild,
    /// They request a rebuild with another image.
    RebuildFrom(&'static str),
    /// They delete it.
    Delete,
    /// They create it.
    Create,
}

/// The binding of Routers to `rug-router`, with a retry policy.
pub fn routers() -> Value {
    let mut binding = rug::binding(json!({}));
    binding["spec"]["policies"]["retry"] = json!({"file": "backoff_retry.wasm"});
    binding
}

/// A router with this many networks. Each of its ports belongs to it.
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

/// The objects at the beginning.
pub fn objects() -> Vec<Value> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let routers = NAMES.iter().map(|name| router(name, 1));
    std::iter::once(namespace).chain(routers).collect()
}

/// Performs an action of people. They accept refusals of the API server.
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

/// Whether the VM of a router was given up and nobody has requested anything since.
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
