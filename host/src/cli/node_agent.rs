//! `polity node-agent`: the agent of the machine on which this process runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use polity_clouds::node;
use polity_core::object::Object;
use polity_kube_rules::names;
use polity_sandbox::Allocation;
use serde_json::{Value, json};

use super::LEASE;
use super::connection::Connection;
use super::run::{identity, recorder, unpredictable};
use super::stopping::{Signals, Stopping};
use crate::binding_objects::is_binding;
use crate::bindings;
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::config::HostConfig;
use crate::data::Data;
use crate::host::{Host, Running};
use crate::overview::Overview;
use crate::policies::Policies;
use crate::private::folder_of;
use crate::progress::{Format, Progress, say};
use crate::recording::RecordingThread;
use crate::secrets::ClusterSecrets;
use crate::selection::Selection;
use crate::waiting::WaitingFile;

/// The placeholder for the node's name in a binding file.
const NODE: &str = "${NODE}";

/// Run the agent of this machine: it keeps the machine's packages as its Node object wants them.
///
/// The agent's policy governs the Node object of this machine. Through the cloud `node` it installs the
/// machine's packages and boots the machine. Binding and policy are local files. Only one agent can run on a
/// machine: it locks its data folder.
#[derive(Debug, Args)]
pub(super) struct NodeAgent {
    /// The name of this machine's Node object.
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: String,
    /// The file of the PolicyBinding. It must govern this Node alone and name the cloud `node`. ${NODE} in it
    /// is replaced by the node's name.
    #[arg(long, value_name = "FILE")]
    binding: PathBuf,
    /// The folder in which the binding's policy files are. The default is the folder of the binding.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Allow the binding to name a policy crate, which cargo builds.
    #[arg(long)]
    build_crates: bool,
    /// A file with the version of each package at the start. The installer of this agent writes it.
    #[arg(long, value_name = "FILE")]
    seed: Option<PathBuf>,
    /// The folder for the agent's state, which outlives restarts and boots.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/polity/node-agent")]
    data: PathBuf,
    /// The root folder of the system whose packages are managed.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print the changes to the machine and make none. The Node object is still written: it says that the
    /// node is not ready as long as the machine is not as it should be.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
    /// Record every pass in this folder and keep them all. Without it the newest 64 MiB are kept in the data
    /// folder.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    #[command(flatten)]
    stopping: Stopping,
}

/// Checks the name of a Node: an RFC 1123 subdomain, as Kubernetes requires.
pub(super) fn node_name(text: &str) -> Result<String, String> {
    match names::dns_subdomain_problem(text) {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("not a valid name of a Node: {why}")),
    }
}

impl NodeAgent {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let code = runtime.block_on(async {
            let mut signals = Signals::catch()?;
            tokio::select! {
                started = self.start(format) => {
                    self.until_its_end(started?, &mut signals, format).await
                }
                () = signals.next() => {
                    say(format, "stopped before it began");
                    Ok(ExitCode::SUCCESS)
                }
            }
        });
        // A package that is being installed is left to finish by itself. The agent looks at it again after
        // its next start.
        runtime.shutdown_background();
        code
    }

    async fn start(&self, format: Format) -> Result<(Running, WaitingFile)> {
        if !self.connection.is_given() {
            bail!("no cluster is named: add --kubeconfig, --context or --in-cluster");
        }
        let binding = self.read_binding()?;
        let data = Arc::new(Data::open(&self.data)?);
        let sandbox = super::sandbox(Allocation::default())?;
        let folder = self
            .policies
            .as_deref()
            .unwrap_or_else(|| folder_of(&self.binding));
        let policies = Arc::new(Policies::new(
            sandbox.clone(),
            folder,
            self.build_crates,
            Box::new(move |message| say(format, message)),
        ));
        let clock = Arc::new(Clock::real());
        let cluster = Arc::new(self.connection.connect(LEASE).await?);
        let secrets = Arc::new(ClusterSecrets::new(cluster.clone()));
        let clouds = Clouds::new(clock.clone(), secrets, Some(data.clone()), unpredictable(), None);
        let clouds = Arc::new(clouds.with_own_node());
        // If the binding cannot be loaded now, it never can: nothing changes it while this process runs. So
        // this is an error of the command.
        bindings::load(&policies, &clouds, &binding)
            .with_context(|| format!("{} does not load", self.binding.display()))?;

        let recorder = recorder(self.record.as_deref(), Some(&data), &sandbox.engine_version())?;
        let started = clock.now().boot;
        let recorded = recorder.path().to_owned();
        let recording = RecordingThread::start(recorder)?;
        let host = Host::start(HostConfig {
            identity: identity(),
            clock: clock.clone(),
            cluster,
            clouds,
            policies,
            threads: 1,
            observer: Box::new(Progress::new(
                format,
                started,
                Arc::new(Overview::default()),
                Some(recording),
            )),
            local: Some(vec![binding]),
            alone: true,
            selection: Selection::default(),
            beside: None,
        });
        let waiting = WaitingFile::keep(host.handle().clone(), clock, recorded);
        Ok((host, waiting))
    }

    async fn until_its_end(
        &self,
        (mut host, waiting): (Running, WaitingFile),
        signals: &mut Signals,
        format: Format,
    ) -> Result<ExitCode> {
        tokio::select! {
            () = signals.next() => say(format, "stopping: waiting for the passes in flight"),
            failure = host.ended_by_itself() => return Err(failure),
        }
        waiting.end().await;
        self.stopping.stop(host, signals, format).await?;
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the binding and fills in this node's name and machine.
    fn read_binding(&self) -> Result<Object> {
        let mut binding = read_binding(&self.binding, &self.node)?;
        let configuration = &mut binding["spec"]["cloud"]["configuration"];
        configuration["root"] = json!(std::path::absolute(&self.root)?);
        configuration["dryRun"] = json!(self.dry_run);
        if let Some(seed) = &self.seed {
            configuration["seed"] = read_seed(seed)?;
        }
        binding["metadata"]["uid"] = json!("local");
        Ok(Object::new(binding))
    }
}

/// Reads the binding for the agent of this node.
pub(super) fn read_binding(file: &Path, node: &str) -> Result<Value> {
    let at = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", at()))?;
    let text = text.replace(NODE, node);
    let mut binding: Value = serde_saphyr::from_str(&text).with_context(at)?;
    if !is_binding(&binding) {
        bail!("{}: expected one PolicyBinding", at());
    }
    let governs = &binding["spec"]["governs"];
    if governs["apiVersion"] != "v1" || governs["kind"] != "Node" || governs["name"] != *node {
        bail!(
            "{}: spec.governs must be the Node {node} and nothing else, with `name: {NODE}`",
            at()
        );
    }
    let cloud = &mut binding["spec"]["cloud"];
    if cloud["name"] != node::ADAPTER.name {
        bail!("{}: spec.cloud.name must be {}", at(), node::ADAPTER.name);
    }
    let configuration = &mut cloud["configuration"];
    if configuration.is_null() {
        *configuration = json!({});
    }
    if !configuration.is_object() {
        bail!("{}: spec.cloud.configuration must be an object", at());
    }
    configuration["node"] = json!(node);
    Ok(binding)
}

fn read_seed(file: &Path) -> Result<Value> {
    let at = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", at()))?;
    let seed: Value = serde_saphyr::from_str(&text).with_context(at)?;
    if seed.is_object() {
        Ok(seed)
    } else {
        Err(anyhow!(
            "{}: expected one version for each package, for example `kubelet: 1.30.2`",
            at()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_node_can_have_is_refused() {
        for fine in ["node-1", "ip-10-0-0-1.eu-central-1.compute.internal"] {
            assert_eq!(node_name(fine).as_deref(), Ok(fine));
        }
        for wrong in ["", "Node", "a..b", "-a", "a\nb: c", "${NODE}"] {
            assert!(node_name(wrong).is_err(), "{wrong:?}");
        }
    }
}
