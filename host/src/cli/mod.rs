//! The command line: one file for each command.

mod completions;
mod confined;
mod connection;
mod crds;
mod dev;
mod edges;
mod explain;
mod get;
mod node_agent;
mod policy;
mod rbac;
mod recorded;
mod replay;
mod resolve;
mod run;
mod settings;
mod status;
mod stopping;
mod test;
mod top;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use polity_clouds::Millis;
use polity_sandbox::{Allocation, Compiler, Confined, KeepsCode, Sandbox, SandboxConfig};
use serde_json::Value;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::compiled::Kept;
use crate::progress::Format;

/// The namespace and name of the lease, where no others are given.
const LEASE: (&str, &str) = ("kube-system", "polity");

/// A controller host for Kubernetes-style reconciliation. Policies make every decision. A policy is a
/// WebAssembly component that has no clock, no network and no files.
#[derive(Debug, Parser)]
#[command(name = "polity", version, max_term_width = 110)]
pub struct Cli {
    /// The output format, of logs too. `json` writes one document per line.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    NodeAgent(node_agent::NodeAgent),
    Explain(explain::Explain),
    Get(get::Get),
    Top(top::Top),
    Status(status::Status),
    Policy(policy::Policy),
    Replay(replay::Replay),
    Test(test::Test),
    Dev(dev::Dev),
    Resolve(resolve::Resolve),
    Edges(edges::Edges),
    Crds(crds::Crds),
    Rbac(rbac::Rbac),
    Completions(completions::Completions),
    #[command(hide = true)]
    Confined(confined::Task),
}

/// The folder in which machine code is kept for the next process, in place of the user's cache; if it is empty, none is kept.
const COMPILED: &str = "POLITY_COMPILED";

/// A sandbox that compiles policies in confined processes.
fn sandbox(allocation: Allocation) -> anyhow::Result<Arc<Sandbox>> {
    let keeps = match std::env::var_os(COMPILED) {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(Kept::open(Path::new(&path)).context(COMPILED)?),
        None => Kept::of_user(),
    };
    let keeps = keeps.map(|kept| Arc::new(kept) as Arc<dyn KeepsCode>);
    let sandbox = Sandbox::new(SandboxConfig {
        allocation,
        keeps,
        ..SandboxConfig::new(Compiler::Child(Confined::itself()?))
    })?;
    Ok(Arc::new(sandbox))
}

/// A time as options are given one: `90s`, `10m`.
fn millis(text: &str) -> Result<Millis, String> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|e| e.to_string())
}

impl Cli {
    /// Runs the command. If it fails, the error and its causes are printed once.
    pub fn run(self) -> ExitCode {
        log(self.output);
        let done = match self.command {
            Command::Run(run) => run.run(self.output),
            Command::NodeAgent(agent) => agent.run(self.output),
            Command::Explain(explain) => explain.run(self.output),
            Command::Get(get) => get.run(self.output),
            Command::Top(top) => top.run(self.output),
            Command::Status(status) => status.run(self.output),
            Command::Policy(policy) => policy.run(self.output),
            Command::Replay(replay) => replay.run(self.output),
            Command::Test(test) => test.run(self.output),
            Command::Dev(dev) => dev.run(self.output),
            Command::Completions(completions) => completions.run(),
            Command::Resolve(resolve) => resolve.run(self.output),
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

/// The levels that hold unless `POLITY_LOG` says something else. kube_client logs every failed call as an error; the
/// host reports failures itself where they matter.
const LEVELS: &str = "warn,kube_client=off,opentelemetry=off";

/// Logs to standard error, by the levels of `POLITY_LOG`: as text for people, or an object of JSON in a line.
fn log(output: Format) {
    let wanted = std::env::var("POLITY_LOG").unwrap_or_default();
    let levels = levels(&wanted).or_else(|e| {
        let why = format!("POLITY_LOG={wanted:?} is not used: {e}. An example is info,polity_cluster=debug");
        crate::progress::say(output, &why);
        levels("")
    });
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(|| crate::screen::Stderr);
    let levels = levels.unwrap_or_default();
    match output {
        Format::Json => log.json().flatten_event(true).finish().with(levels).init(),
        Format::Text => log
            .with_ansi(std::io::stderr().is_terminal())
            .without_time()
            .finish()
            .with(levels)
            .init(),
    }
}

/// The levels that somebody wants, beside [`LEVELS`].
fn levels(wanted: &str) -> Result<Targets, tracing_subscriber::filter::ParseError> {
    match wanted {
        "" => LEVELS.parse(),
        wanted => format!("{LEVELS},{wanted}").parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_are_those_that_somebody_wants_beside_those_that_hold_anyway() {
        let level = tracing::Level::DEBUG;
        for (wanted, polity, kube) in [
            ("", false, false),
            ("debug", true, false),
            ("kube_client=debug", false, true),
        ] {
            let levels = levels(wanted).unwrap();
            assert_eq!(levels.would_enable("polity::engine", &level), polity, "{wanted}");
            assert_eq!(
                levels.would_enable("kube_client::client", &level),
                kube,
                "{wanted}"
            );
        }
        levels("polity=loud").unwrap_err();
    }
}
