//! The command line: one file for each command.

mod confined;
mod connection;
mod crds;
mod edges;
mod explain;
mod node_agent;
mod rbac;
mod run;
mod stopping;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use polity_clouds::Millis;
use polity_sandbox::{Allocation, Compiler, Confined, Sandbox, SandboxConfig};
use serde_json::Value;

use crate::progress::Format;

/// Where the lease stands in a cluster.
const LEASE: (&str, &str) = ("kube-system", "polity");

/// A controller host for Kubernetes-style reconciliation whose every decision is made by a policy: a WebAssembly
/// component that can do nothing but decide.
#[derive(Debug, Parser)]
#[command(name = "polity", version, max_term_width = 110)]
pub struct Cli {
    /// How output is written: `json` writes one document a line.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the host: with an embedded API and a simulated cloud, or against a cluster.
    Run(run::Run),
    /// Be the agent of the machine that this process runs on.
    NodeAgent(node_agent::NodeAgent),
    /// Show the passes of an object, and why each step was taken.
    Explain(explain::Explain),
    /// Count which edges of the policies' workflows recordings took.
    Edges(edges::Edges),
    /// Print the CustomResourceDefinitions of bindings and of policies, ready for `kubectl apply -f -`.
    Crds(crds::Crds),
    /// Print the least RBAC that bindings need, ready for `kubectl apply -f -`.
    Rbac(rbac::Rbac),
    #[command(hide = true)]
    Confined(confined::Task),
}

/// A sandbox that leaves what nobody vouches for to processes of its own.
fn sandbox(allocation: Allocation) -> anyhow::Result<Arc<Sandbox>> {
    let sandbox = Sandbox::new(SandboxConfig {
        allocation,
        compiler: Compiler::Child(Confined::itself()?),
        ..SandboxConfig::default()
    })?;
    Ok(Arc::new(sandbox))
}

/// A time as options are given one: `90s`, `10m`.
fn millis(text: &str) -> Result<Millis, String> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|e| e.to_string())
}

impl Cli {
    /// Runs the command. An error is printed with its causes, once.
    pub fn run(self) -> ExitCode {
        // The client reports every failed call as an error of its own; what comes of it is said where it matters.
        let wanted = std::env::var("POLITY_LOG").unwrap_or_else(|_| "warn,kube_client=off".into());
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::new(wanted))
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .without_time()
            .init();
        let done = match self.command {
            Command::Run(run) => run.run(self.output),
            Command::NodeAgent(agent) => agent.run(self.output),
            Command::Explain(explain) => explain.run(self.output),
            Command::Edges(edges) => edges.run(self.output),
            Command::Crds(crds) => crds.run(self.output),
            Command::Rbac(rbac) => rbac.run(self.output),
            Command::Confined(task) => Ok(task.run()),
        };
        done.unwrap_or_else(|e| {
            crate::progress::say(self.output, &format!("{e:#}"));
            ExitCode::from(2)
        })
    }
}
