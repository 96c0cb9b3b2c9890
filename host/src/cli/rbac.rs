//! `polity rbac`: the RBAC rules that a host needs in a cluster, ready for `kubectl apply -f -`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use polity_cluster::Cluster;
use polity_core::binding::Binding;
use polity_core::contract::Manifest;
use polity_core::object::Object;
use polity_kube_rules::labels::LabelSelector;
use polity_sandbox::Allocation;
use serde_json::Value;

use super::node_agent::{self, node_name};
use super::settings::Domain;
use crate::bindings::load;
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::connections::{Connections, is_connection};
use crate::manifests::Manifests;
use crate::policies::Policies;
use crate::private::folder_of;
use crate::progress::{Format, say, show};
use crate::rbac::Allowed;
use crate::secrets::ClusterSecrets;
use crate::standalone;

/// Print the least RBAC rules that a host needs for its bindings, ready for `kubectl apply -f -`.
///
/// The rules are derived from the bindings' grants and from the paths that their policies write. Applying
/// manifests with `polity run FILE` needs more rights: run it as an administrator.
#[derive(Debug, Args)]
pub(super) struct Rbac {
    /// Manifests with bindings: files, or folders with .yaml, .yml and .json files.
    #[arg(value_name = "DIR|FILE", required = true)]
    paths: Vec<PathBuf>,
    /// Print the rules for the agent of this node (`polity node-agent --node NAME`). FILE is the agent's
    /// binding.
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: Option<String>,
    /// The service account of the host, as NAMESPACE/NAME. The default is polity-system/polity, and for the
    /// agent of a node polity-system/polity-node-NAME.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account)]
    service_account: Option<(String, String)>,
    /// What the roles are called; the default is polity, for a node's agent polity-node-NAME.
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    name: Option<String>,
    #[command(flatten)]
    domain: Domain,
    /// The folder in which the bindings' policy files are. The default is the folder of the first DIR or
    /// FILE.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Ask the cluster of this kubeconfig how it serves kinds. Without it, only the kinds of the policies and
    /// those Kubernetes kinds that the embedded API serves are known.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

fn account(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("expected a namespace and a name, for example polity-system/polity".to_owned()),
    }
}

impl Rbac {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let allowed = runtime.block_on(self.derive(format))?;
        let name = self
            .node
            .as_ref()
            .map_or_else(|| "polity".to_owned(), |node| format!("polity-node-{node}"));
        let own = || ("polity-system".to_owned(), name.clone());
        let (namespace, account) = self.service_account.clone().unwrap_or_else(own);
        let name = self.name.as_ref().unwrap_or(&name);
        for object in allowed.objects(name, (&namespace, &account)) {
            show(&object, format)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the bindings and the other objects beside them. The rules are those that any binding needs.
    fn read(&self) -> Result<(Manifests, Allowed)> {
        let Some(node) = &self.node else {
            let manifests = Manifests::read(&self.paths)?;
            let allowed = Allowed::for_any_host(self.domain.lease());
            let namespaces = self.domain.selection(LabelSelector::default()).namespaces;
            return Ok((manifests, allowed.within(namespaces)));
        };
        let bindings: Result<Vec<Value>> = self
            .paths
            .iter()
            .map(|file| node_agent::read_binding(file, node))
            .collect();
        let folder = self.paths.first().map(|file| folder_of(file));
        let manifests = Manifests {
            bindings: bindings?,
            folder: folder.map(Path::to_owned),
            ..Manifests::default()
        };
        Ok((manifests, Allowed::for_a_node_agent()))
    }

    async fn derive(&self, format: Format) -> Result<Allowed> {
        let (manifests, mut allowed) = self.read()?;
        if manifests.bindings.is_empty() {
            bail!("the given files hold no PolicyBinding");
        }
        let connections = manifests.objects.iter().filter(|object| is_connection(object));
        connections.for_each(|object| allowed.connection(self.domain.lease(), &object["spec"]));
        let loading = self.loading(&manifests, format)?;
        let connected = match &self.kubeconfig {
            Some(file) => Some(
                Cluster::connect(Some(file), None, self.domain.lease())
                    .await
                    .context("cannot connect to the cluster")?,
            ),
            None => None,
        };
        let mut first = Vec::new();
        if self.node.is_none() {
            first.push(crate::crds::policy_binding());
            first.push(crate::crds::cloud_connection());
        }
        for binding in manifests.bindings {
            let object = Object::new(binding);
            let ready = load(&loading.policies, &loading.clouds, &object);
            let ready = ready.with_context(|| format!("binding {}", object.name()))?;
            for brought in crate::crds::brought(&ready.binding).0 {
                let applied = loading.embedded.apply(&brought.definition).await;
                applied.map_err(|failure| anyhow!("{failure}"))?;
                first.push(brought.definition);
            }
            let cluster = connected.as_ref().unwrap_or(&loading.embedded);
            self.bind(&mut allowed, cluster, &ready.binding).await?;
        }
        tell_what_comes_first(&first, format);
        Ok(allowed)
    }

    /// What loads the bindings, without a cluster.
    fn loading(&self, manifests: &Manifests, format: Format) -> Result<Loading> {
        let folder = self.policies.clone().or(manifests.folder.clone());
        let policies = Arc::new(Policies::new(
            super::sandbox(Allocation::default())?,
            &folder.unwrap_or_else(|| PathBuf::from(".")),
            true,
            Box::new(move |message| say(format, message)),
        ));
        let clock = Arc::new(Clock::real());
        let client = kube::Client::new(standalone::open(&clock, None, None)?, "default");
        let embedded = Arc::new(Cluster::new(client, self.domain.lease()));
        let secrets = Arc::new(ClusterSecrets::new(embedded.clone()));
        let connections = Connections::new(
            embedded.clone(),
            policies.clone(),
            clock.clone(),
            secrets.clone(),
            0,
            Vec::new(),
        );
        for object in manifests.objects.iter().filter(|object| is_connection(object)) {
            connections.define(
                object["metadata"]["name"].as_str().unwrap_or_default(),
                &object["spec"],
            );
        }
        let clouds = Clouds::new(clock, secrets, None, 0, None).with_connections(connections.into());
        let clouds = match self.node {
            Some(_) => clouds.with_own_node(),
            None => clouds,
        };
        Ok(Loading {
            policies,
            embedded,
            clouds,
        })
    }

    async fn bind(&self, allowed: &mut Allowed, cluster: &Cluster, binding: &Binding) -> Result<()> {
        let (name, spec) = (&binding.name, &binding.spec);
        let selection = self.domain.selection(LabelSelector::default());
        if let Some(problem) = selection.problem(cluster, spec).await {
            bail!("binding {name}: {problem}");
        }
        let needed: Vec<&Manifest> = binding.policies.values().map(|p| &*p.manifest).collect();
        let bound = allowed.bind(cluster, self.domain.lease(), spec, &needed).await;
        bound.with_context(|| match self.kubeconfig {
            Some(_) => format!("binding {name}"),
            None => format!(
                "binding {name}: name a kubeconfig with --kubeconfig to look up kinds that are not built in"
            ),
        })
    }
}

/// What loads bindings, to see what they need.
struct Loading {
    policies: Arc<Policies>,
    /// Knows the kinds that the policies bring.
    embedded: Arc<Cluster>,
    clouds: Clouds,
}

fn tell_what_comes_first(definitions: &[Value], format: Format) {
    let names = definitions
        .iter()
        .filter_map(|crd| crd["metadata"]["name"].as_str());
    let names: BTreeSet<&str> = names.collect();
    if names.is_empty() {
        return;
    }
    let names: Vec<&str> = names.into_iter().collect();
    say(
        format,
        &format!(
            "an administrator applies first, because the host may not: the CustomResourceDefinitions {} (polity crds \
             POLICY…), what is printed here, the bindings and their objects",
            names.join(", ")
        ),
    );
}
