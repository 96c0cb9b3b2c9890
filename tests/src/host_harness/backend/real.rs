//! A real API server as a backend: the rights that hosts have there, and how it is emptied between scenarios.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client, ResourceExt as _};
use polity::clock::Clock;
use polity::rbac::Allowed;
use polity_core::binding::BindingSpec;
use polity_core::contract::Manifest;
use serde_json::{Value, json};

use super::{Backend, SEED, Soon};
use crate::guests;
use crate::host_harness::{LEASE, Site};
use crate::kubernetes::KubeServer;

/// Nothing is measured by it: a real server may share its machine with compilers.
const PATIENCE: Duration = Duration::from_secs(300);
/// The host's service account.
const ACCOUNT: (&str, &str) = ("polity-system", "polity");
/// What no scenario is about, and what it may leave behind: a kind that goes takes the server a while.
const STAY: [&str; 3] = ["CustomResourceDefinition", "Event", "APIService"];
/// Between two looks at what is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A kube-apiserver, in real time, for one scenario after the other. Each has a runtime of its own with several
/// threads, which ends with its hosts before the next one begins.
pub struct RealServer {
    server: RefCell<KubeServer>,
    /// The uids of what a server has by itself.
    own: OnceCell<BTreeSet<String>>,
}

impl RealServer {
    /// On a server that serves, without controllers so far.
    pub fn new(server: KubeServer) -> Self {
        RealServer {
            server: RefCell::new(server),
            own: OnceCell::new(),
        }
    }

    #[allow(
        clippy::await_holding_refcell_ref,
        reason = "one scenario at a time, on one thread"
    )]
    async fn admin(&self) -> Client {
        self.server.borrow().client().await
    }

    #[allow(
        clippy::await_holding_refcell_ref,
        reason = "one scenario at a time, on one thread"
    )]
    async fn client_of(&self, (namespace, name): (&str, &str)) -> Client {
        self.server.borrow().client_of(namespace, name).await
    }

    /// Takes away what earlier scenarios left, whatever holds it: but for kinds.
    async fn clear(&self, client: &Client) {
        let Some(own) = self.own.get() else {
            let first = all(client).await;
            let uids = first.into_iter().filter_map(|(_, object)| object.uid());
            return self.own.set(uids.collect()).expect("it was not known");
        };
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut left = all(client).await;
            left.retain(|(_, object)| object.uid().is_none_or(|uid| !own.contains(&uid)));
            if left.is_empty() {
                return;
            }
            let names: Vec<String> = left.iter().map(|(_, object)| object.name_any()).collect();
            assert!(tokio::time::Instant::now() < end, "left behind: {names:?}");
            for (api, object) in left {
                let name = object.name_any();
                // Some of it goes with the rest, or is made anew by a controller: the next look tells.
                if !object.finalizers().is_empty() {
                    let free = json!({"metadata": {"finalizers": null}});
                    let _ = api
                        .patch(&name, &PatchParams::default(), &Patch::Merge(free))
                        .await;
                }
                let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Every object of a cluster that can be deleted, and how it is reached.
async fn all(client: &Client) -> Vec<(Api<DynamicObject>, DynamicObject)> {
    let discovery = Discovery::new(client.clone()).run().await;
    let discovery = discovery.expect("the server says what it serves");
    let mut all = Vec::new();
    for (resource, capabilities) in discovery.groups().flat_map(|group| group.recommended_resources()) {
        let can = |verb: &str| capabilities.supports_operation(verb);
        if STAY.contains(&&*resource.kind) || !can(verbs::LIST) || !can(verbs::DELETE) {
            continue;
        }
        let everywhere = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let listed = everywhere.list(&ListParams::default()).await;
        for object in listed.into_iter().flatten() {
            let api = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => everywhere.clone(),
            };
            all.push((api, object));
        }
    }
    all
}

impl Backend for RealServer {
    fn site(&self, sim: Value) -> Soon<'_, Site> {
        Box::pin(async move {
            let client = self.admin().await;
            self.clear(&client).await;
            let hosts = self.client_of(ACCOUNT).await;
            Site::on(client, hosts, Arc::new(Clock::real()), SEED, Some(sim))
        })
    }

    fn allow<'a>(&'a self, site: &'a Site, bindings: &'a [Value]) -> Soon<'a, ()> {
        Box::pin(async move {
            // Its garbage collector looks for kinds when it starts, and then hardly ever.
            tokio::task::block_in_place(|| self.server.borrow_mut().start_controllers());
            allow(site, ACCOUNT, Allowed::for_any_host(LEASE), bindings).await;
            let secrets = http::Request::get("/api/v1/secrets").body(Vec::new());
            let host = self.client_of(ACCOUNT).await;
            let refused = host.request_text(secrets.expect("a request")).await;
            assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
        })
    }

    fn agent<'a>(&'a self, site: &'a Site, binding: &'a Value) -> Soon<'a, Client> {
        Box::pin(async move {
            allow_agent(site, binding).await;
            let (namespace, name) = account_of(binding);
            self.client_of((namespace, &name)).await
        })
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}

/// The node that an agent with this binding is of.
///
/// # Panics
/// If it names none.
pub fn node_of(agent: &Value) -> &str {
    agent["spec"]["governs"]["name"].as_str().expect("a node")
}

/// The service account of a node's agent.
pub fn account_of(agent: &Value) -> (&'static str, String) {
    (ACCOUNT.0, format!("polity-node-{}", node_of(agent)))
}

/// Allows an agent's service account what `polity rbac --node` derives from its binding, and nothing else.
pub async fn allow_agent(site: &Site, agent: &Value) {
    let (namespace, name) = account_of(agent);
    let bindings = std::slice::from_ref(agent);
    allow(site, (namespace, &name), Allowed::for_a_node_agent(), bindings).await;
}

/// Allows a service account that, and what `polity rbac` derives from the bindings.
async fn allow(site: &Site, account: (&str, &str), mut allowed: Allowed, bindings: &[Value]) {
    for binding in bindings {
        let spec: BindingSpec = serde_json::from_value(binding["spec"].clone()).expect("a binding");
        let sources = [
            &spec.policies.identity,
            &spec.policies.lifecycle,
            &spec.policies.retry,
        ];
        let files = sources.into_iter().flatten().flat_map(|source| &source.file);
        let policies: Vec<_> = files
            .map(|file| guests::load(file.trim_end_matches(".wasm")))
            .collect();
        let manifests: Vec<&Manifest> = policies.iter().map(|policy| &**policy.manifest()).collect();
        let bound = allowed.bind(&site.cluster, LEASE, &spec, &manifests).await;
        bound.expect("its kinds are served");
    }
    for object in allowed.objects(account.1, account) {
        let applied = site.cluster.apply(&object).await;
        applied.unwrap_or_else(|failure| panic!("{failure}: {object}"));
    }
}
