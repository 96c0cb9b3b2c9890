//! The finalizer of a connection. It keeps the connection as long as a binding names the connection, or an entry in
//! `status.pending` can be resolved only in its cloud.

use polity_cluster::Cluster;
use polity_core::binding::{API_VERSION, BindingSpec};
use polity_core::call::Write;
use polity_core::contract::{Code, Failure, Kind, ObjectRef};
use polity_core::object::Object;
use polity_kube_rules::finalizers;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::KIND;
use super::in_use::{self, Governed};
use crate::display::hex;

/// How often the host tries to write a finalizer while other writers change the connection.
const TRIES: u32 = 5;
/// How many bindings are named in a message.
const NAMED: usize = 10;
/// The most bytes of a finalizer's name after its domain: the limit of Kubernetes for this part.
const LONGEST: usize = 63;

/// The finalizer of all hosts that share one lease.
pub(super) struct Hold {
    finalizer: String,
}

impl Hold {
    /// The finalizer of the hosts with this lease.
    pub(super) fn of((namespace, lease): (&str, &str)) -> Self {
        let name = format!("{namespace}.{lease}");
        let name = if name.len() <= LONGEST {
            name
        } else {
            hex(&Sha256::digest(&name)[..16])
        };
        Hold {
            finalizer: format!("polity.dev/{name}"),
        }
    }

    /// Whether a connection has this finalizer.
    pub(super) fn is_on(&self, object: &Object) -> bool {
        object.has_finalizer(&self.finalizer)
    }

    /// Adds the finalizer to a connection. Does nothing if the connection is not in the cluster.
    ///
    /// # Errors
    /// The connection is being deleted, or cannot be written.
    pub(super) async fn take(&self, cluster: &Cluster, name: &str) -> Result<(), Failure> {
        for _ in 0..TRIES {
            let Some(object) = latest(cluster, name).await? else {
                return Ok(());
            };
            if self.is_on(&object) {
                return Ok(());
            }
            if object.is_deleting() {
                let message = format!("{KIND} {name} is being deleted");
                return Err(Failure::new(Code::FailedPrecondition, message));
            }
            let mut next = object.tree();
            finalizers::add(&mut next, &self.finalizer);
            match cluster.write(&write(&object, &next)).await {
                Err(failure) if failure.code == Code::Aborted => {}
                written => return written.map(drop),
            }
        }
        let message = format!(
            "the finalizer of {KIND} {name} was not written: other writers changed the object {TRIES} times in a row"
        );
        Err(Failure::new(Code::Aborted, message))
    }

    /// Removes the finalizer from a connection that nothing needs. Otherwise returns what needs the connection.
    ///
    /// # Errors
    /// The cluster cannot be asked, or the connection cannot be written.
    pub(super) async fn release(
        &self,
        cluster: &Cluster,
        name: &str,
        governed: &Governed,
    ) -> Result<Option<String>, Failure> {
        // The connection is read before the bindings. The write below expects this version, so it fails if the connection
        // was changed meanwhile.
        let Some(object) = latest(cluster, name).await? else {
            return Ok(None);
        };
        let bindings = governed.bindings(cluster).await?;
        if let Some(needs) = named_by(name, &bindings) {
            return Ok(Some(needs));
        }
        if let Some(place) = object.str_at("status.place") {
            let entries = in_use::entries(cluster, &bindings, governed.namespaces()).await?;
            let there = entries.iter().find(|entry| entry.is_in(&place));
            if let Some(entry) = there {
                let needs = format!(
                    "an entry in status.pending of {} is in doubt in its cloud: name the connection in a binding, or end the entry with polity resolve",
                    entry.object
                );
                return Ok(Some(needs));
            }
        }
        let mut next = object.tree();
        finalizers::remove(&mut next, &self.finalizer);
        cluster.write(&write(&object, &next)).await?;
        // A binding that was loaded since the first look has found the finalizer on the connection, and has not written it.
        let needs = named_by(name, &governed.bindings(cluster).await?);
        if needs.is_some() {
            self.take(cluster, name).await?;
        }
        Ok(needs)
    }
}

/// A sentence that lists the bindings that name a connection.
pub(super) fn named_by(connection: &str, bindings: &[(String, BindingSpec)]) -> Option<String> {
    let names = bindings
        .iter()
        .filter(|(_, spec)| in_use::is_named(connection, spec));
    let names: Vec<&str> = names.map(|(name, _)| name.as_str()).take(NAMED).collect();
    match names[..] {
        [] => None,
        [name] => Some(format!("PolicyBinding {name} names it")),
        _ => Some(format!("the PolicyBindings {} name it", names.join(", "))),
    }
}

/// A connection as the API server has it now.
async fn latest(cluster: &Cluster, name: &str) -> Result<Option<Object>, Failure> {
    let object = ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
        },
        namespace: None,
        name: name.to_owned(),
    };
    match cluster.latest(object).await {
        Ok(object) => Ok(Some(Object::new(object))),
        Err(failure) if failure.code == Code::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A write of the finalizers in `next`. It fails if the connection has changed since `object` was read.
fn write(object: &Object, next: &Value) -> Write {
    Write::Patch {
        object: object.reference(),
        subresource: None,
        precondition: Some(object.precondition()),
        patch: json!({"metadata": {"finalizers": next["metadata"]["finalizers"]}}),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tower::{Service as _, service_fn};

    use super::*;
    use crate::clock::Clock;
    use crate::{crds, standalone};

    const LEASE: (&str, &str) = ("polity-system", "polity");

    /// A cluster with the connection `east`. As soon as a host changes the connection, somebody makes a binding that names
    /// it.
    async fn cluster_where_a_binding_comes_late() -> Cluster {
        let api = standalone::open(&Arc::new(Clock::real()), None, None).expect("an API");
        let plain = Arc::new(Cluster::new(kube::Client::new(api.clone(), "default"), LEASE));
        let connection = json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "east"},
            "spec": {"driver": {"file": "d.wasm"}},
        });
        for object in [crds::policy_binding(), crds::cloud_connection(), connection] {
            plain.apply(&object).await.expect("applied");
        }
        Hold::of(LEASE).take(&plain, "east").await.expect("taken");
        let late = move |request: http::Request<kube::client::Body>| {
            let (mut api, plain) = (api.clone(), plain.clone());
            async move {
                if request.method() == http::Method::PATCH {
                    let binding = json!({
                        "apiVersion": API_VERSION, "kind": "PolicyBinding", "metadata": {"name": "late"},
                        "spec": {"governs": {"apiVersion": "g/v1", "kind": "Widget"}, "cloud": {"name": "east"},
                            "policies": {"lifecycle": {"file": "p.wasm"}}},
                    });
                    plain.apply(&binding).await.expect("a binding");
                }
                api.call(request).await
            }
        };
        Cluster::new(kube::Client::new(service_fn(late), "default"), LEASE)
    }

    #[tokio::test]
    async fn a_binding_that_is_made_while_the_finalizer_is_removed_brings_it_back() {
        let cluster = cluster_where_a_binding_comes_late().await;
        let hold = Hold::of(LEASE);
        let needs = hold.release(&cluster, "east", &Governed::default()).await;
        assert_eq!(needs, Ok(Some("PolicyBinding late names it".to_owned())));
        let now = latest(&cluster, "east").await.expect("read");
        assert!(hold.is_on(&now.expect("it stands")));
    }

    #[test]
    fn the_hosts_of_a_lease_have_a_finalizer_of_their_own_whatever_its_name() {
        assert_eq!(
            Hold::of(("polity-system", "polity")).finalizer,
            "polity.dev/polity-system.polity"
        );
        let long = "n".repeat(63);
        let (one, other) = (Hold::of((&long, "a")), Hold::of((&long, "b")));
        assert_ne!(one.finalizer, other.finalizer);
        assert_eq!(one.finalizer.len(), "polity.dev/".len() + 32);
        assert_eq!(
            polity_kube_rules::names::qualified_name_problem(&one.finalizer),
            None
        );
    }

    #[test]
    fn a_connection_is_named_by_bindings_in_a_sentence() {
        let spec = |cloud: &str| -> BindingSpec {
            serde_json::from_value(json!({
                "governs": {"apiVersion": "g/v1", "kind": "Widget"}, "cloud": {"name": cloud}, "policies": {},
            }))
            .expect("a spec")
        };
        let bindings = [("a", "x"), ("b", "y"), ("c", "x")];
        let bindings = bindings.map(|(name, cloud)| (name.to_owned(), spec(cloud)));
        assert_eq!(
            named_by("x", &bindings).as_deref(),
            Some("the PolicyBindings a, c name it")
        );
        assert_eq!(
            named_by("y", &bindings).as_deref(),
            Some("PolicyBinding b names it")
        );
        assert_eq!(named_by("z", &bindings), None);
    }
}
