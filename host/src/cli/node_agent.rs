//! `polity node-agent`: the agent of the machine that this process runs on.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use polity_clouds::node;
use polity_core::object::Object;
use polity_kube_rules::names;
use polity_sandbox::Allocation;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::connection::Connection;
use super::run::{identity, recorder, unpredictable};
use super::stopping::{Signals, Stopping};
use crate::bindings;
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::config::Config;
use crate::data::Data;
use crate::host::{Host, Running};
use crate::policies::Policies;
use crate::progress::{Format, Progress, say};
use crate::secrets::ClusterSecrets;
use crate::settled::LastOutcomes;

/// What stands for the node's name in a binding file.
const NODE: &str = "${NODE}";

/// Be the agent of the machine that this process runs on.
///
/// A policy governs this machine's own Node, and through the cloud `node` the packages and boots of the machine itself.
/// Binding and policy are local files. There is one agent on a machine: it keeps its data folder to itself.
#[derive(Debug, Args)]
pub(super) struct NodeAgent {
    /// The name of this machine's Node.
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: String,
    /// The PolicyBinding, in which ${NODE} stands for the node's name. It governs that Node and names the cloud `node`.
    #[arg(long, value_name = "FILE")]
    binding: PathBuf,
    /// The folder that the binding names policy files in; the default is the folder of the binding.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Let the binding name a policy crate, which cargo builds.
    #[arg(long)]
    build_crates: bool,
    /// The versions to begin with, by package: a file that whoever installs this agent writes.
    #[arg(long, value_name = "FILE")]
    seed: Option<PathBuf>,
    /// What is remembered across boots and restarts.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/polity/node-agent")]
    data: PathBuf,
    /// The root of the system whose packages these are.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Say what would be done to the machine, and do nothing to it. Its Node is written to all the same: that it is not
    /// ready, as long as it is not what is wanted.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
    /// Record every pass here, and keep all of them. Without it the newest 64 MiB are kept in the data folder.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    #[command(flatten)]
    stopping: Stopping,
}

/// A name that a Node can have: an RFC 1123 subdomain, as Kubernetes demands.
pub(super) fn node_name(text: &str) -> Result<String, String> {
    match names::dns_subdomain_problem(text) {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("no name of a Node: {why}")),
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
        // What is being installed goes on when the agent starts again.
        runtime.shutdown_background();
        code
    }

    async fn start(&self, format: Format) -> Result<Running> {
        if !self.connection.is_given() {
            bail!("--kubeconfig, --context or --in-cluster is needed: where is the Node?");
        }
        let binding = self.read_binding()?;
        let data = Arc::new(Data::open(&self.data)?);
        let sandbox = super::sandbox(Allocation::default())?;
        let folder = self.policies.as_deref().or(self.binding.parent());
        let policies = Arc::new(Policies::new(
            sandbox.clone(),
            folder.unwrap_or(Path::new(".")),
            self.build_crates,
            Box::new(move |message| say(format, message)),
        ));
        let clock = Arc::new(Clock::real());
        let cluster = Arc::new(self.connection.connect().await?);
        let secrets = Arc::new(ClusterSecrets::new(cluster.clone()));
        let clouds = Clouds::new(clock.clone(), secrets, Some(data.clone()), unpredictable(), None);
        let clouds = Arc::new(clouds.with_own_node());
        // A binding that does not load never will: there is nobody to change it while this process runs.
        bindings::load(&policies, &clouds, &binding)
            .with_context(|| format!("{} does not load", self.binding.display()))?;

        let recorder = recorder(self.record.as_deref(), Some(&data), &sandbox.engine_version())?;
        let started = clock.now().boot;
        Ok(Host::start(Config {
            identity: identity(),
            clock,
            cluster,
            clouds,
            policies,
            threads: 1,
            observer: Box::new(Progress::new(
                format,
                started,
                Arc::new(LastOutcomes::default()),
                Some(recorder),
            )),
            local: Some(vec![binding]),
            kubelets: false,
        }))
    }

    async fn until_its_end(
        &self,
        mut host: Running,
        signals: &mut Signals,
        format: Format,
    ) -> Result<ExitCode> {
        tokio::select! {
            () = signals.next() => say(format, "stopping: what is in flight is finished first"),
            failure = host.ended_by_itself() => return Err(failure),
        }
        self.stopping.stop(host, signals, format).await?;
        Ok(ExitCode::SUCCESS)
    }

    /// The binding, with this node's name and machine in it.
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

/// The binding of the agent of this node.
pub(super) fn read_binding(file: &Path, node: &str) -> Result<Value> {
    let at = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", at()))?;
    let text = text.replace(NODE, node);
    let mut binding: Value = serde_yaml_ng::from_str(&text).with_context(at)?;
    if !bindings::is_binding(&binding) {
        bail!("{}: no PolicyBinding", at());
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
    let document = serde_yaml_ng::Deserializer::from_str(&text);
    let seed = Value::deserialize(document).with_context(at)?;
    match seed.is_object() {
        true => Ok(seed),
        false => Err(anyhow!(
            "{}: versions by package are needed: `kubelet: 1.30.2`",
            at()
        )),
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
