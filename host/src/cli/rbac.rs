//! `polity rbac`: what a host must be allowed in a cluster, ready for `kubectl apply -f -`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use polity_cluster::Cluster;
use polity_core::contract::Manifest;
use polity_core::object::Object;
use polity_sandbox::{Sandbox, SandboxConfig};

use super::LEASE;
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::manifests::Manifests;
use crate::policies::Policies;
use crate::progress::{Format, say, show};
use crate::rbac::Allowed;
use crate::secrets::ClusterSecrets;
use crate::{bindings, standalone};

/// Print the least RBAC that a host needs for these bindings, ready for `kubectl apply -f -`.
///
/// It is derived from their grants and from what their policies write. Applying manifests (`polity run FILE`) needs more:
/// that is an administrator's.
#[derive(Debug, Args)]
pub(super) struct Rbac {
    /// Manifests with bindings: files, or folders with .yaml, .yml and .json files.
    #[arg(value_name = "DIR|FILE", required = true)]
    paths: Vec<PathBuf>,
    /// The service account that the host has.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "polity-system/polity", value_parser = account)]
    service_account: (String, String),
    /// The folder that bindings name policy files in; the default is the folder of the first DIR or FILE.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Look up how kinds are served in the cluster of this kubeconfig. Without it, only kinds of Kubernetes that the
    /// embedded API serves and those of the policies are known.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

fn account(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("a namespace and a name are needed: polity-system/polity".to_owned()),
    }
}

impl Rbac {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let allowed = runtime.block_on(self.derive(format))?;
        let (namespace, name) = &self.service_account;
        for object in allowed.objects("polity", (namespace, name)) {
            show(&object, format)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn derive(&self, format: Format) -> Result<Allowed> {
        let manifests = Manifests::read(&self.paths)?;
        if manifests.bindings.is_empty() {
            bail!("there is no PolicyBinding in what was given");
        }
        let folder = self.policies.clone().or(manifests.folder.clone());
        let policies = Arc::new(Policies::new(
            Arc::new(Sandbox::new(SandboxConfig::default())?),
            &folder.unwrap_or_else(|| PathBuf::from(".")),
            true,
            Box::new(move |message| say(format, message)),
        ));
        let clock = Arc::new(Clock::resume(1.0, 0));
        let embedded = Cluster::new(
            kube::Client::new(standalone::open(&clock, None)?, "default"),
            LEASE,
        );
        let embedded = Arc::new(embedded);
        let secrets = Arc::new(ClusterSecrets::new(embedded.clone()));
        let clouds = Clouds::new(clock, secrets, None, 0, None);
        let connected = match &self.kubeconfig {
            Some(file) => Some(
                Cluster::connect(Some(file), None, LEASE)
                    .await
                    .context("cannot connect to the cluster")?,
            ),
            None => None,
        };

        let mut allowed = Allowed::for_any_host(LEASE);
        for binding in &manifests.bindings {
            let object = Object::new(binding.clone());
            let loaded = bindings::load(&policies, &clouds, &object);
            let ready = loaded.with_context(|| format!("binding {}", object.name()))?;
            let needed: Vec<&Manifest> = ready.binding.policies.values().map(|p| &*p.manifest).collect();
            for definition in needed.iter().flat_map(|manifest| manifest.crds()) {
                embedded
                    .apply(definition)
                    .await
                    .map_err(|failure| anyhow!("{failure}"))?;
            }
            let cluster = connected.as_ref().unwrap_or(&embedded);
            let bound = allowed.bind(cluster, LEASE, &ready.binding.spec, &needed).await;
            bound.with_context(|| {
                let name = object.name();
                match connected {
                    Some(_) => format!("binding {name}"),
                    None => format!("binding {name}: --kubeconfig says how a cluster serves other kinds"),
                }
            })?;
        }
        Ok(allowed)
    }
}
