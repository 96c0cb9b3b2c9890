//! `polity replay`: what another version of a policy, or another driver, would have done with what was recorded.

mod driver;
mod policies;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::recorded::{Recorded, Sessions};
use crate::progress::Format;

/// Play what was recorded to another version of a policy or driver, and show what it would have decided otherwise.
///
/// Every pass of the recording is judged: the policy gets the object, the answers and the time of then, and what it decides is
/// compared with what was decided. Nothing is asked and nothing is done. Differences that are alike are one group, with three
/// of its passes. Each pass is judged on its own: what another decision would have led to later is not known. Without
/// --policy and --driver the recorded versions themselves are judged, which must decide the same to the byte.
///
/// With --driver the exchanges with clouds are played to a driver: those of operations that failed, of creates, and of looks for
/// what was created. Its requests get the recorded responses.
///
/// Exits 1 if something is found that --fail-on names; without --policy, if anything differs.
///
/// Examples:
///
///   polity replay --policy ./my-policy
///
///   polity replay --recordings DIR --all --policy new.wasm --configuration new.yaml --fail-on differs,fault
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Replay {
    /// The policy: a wasm file, or the folder of its crate, which cargo builds.
    #[arg(long, value_name = "POLICY", conflicts_with = "driver")]
    policy: Option<PathBuf>,
    /// The configuration of the policy, as YAML or JSON, in place of those in the recorded bindings.
    #[arg(long, value_name = "FILE", requires = "policy")]
    configuration: Option<PathBuf>,
    /// Judge only passes of this binding. Without it, those whose policy has the same name, or whose kind the policy governs.
    #[arg(long, value_name = "NAME", requires = "policy")]
    binding: Option<String>,
    /// Exit 1 if such a pass is found.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "policy")]
    fail_on: Vec<FailOn>,
    /// The driver: a wasm file, or the folder of its crate, which cargo builds.
    #[arg(long, value_name = "DRIVER")]
    driver: Option<PathBuf>,
    /// Replay only what was exchanged by this connection. It is needed if connections of several drivers were recorded.
    #[arg(long, value_name = "NAME", requires = "driver")]
    connection: Option<String>,
    #[command(flatten)]
    recorded: Recorded,
    #[command(flatten)]
    sessions: Sessions,
}

/// What makes `polity replay` fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// A pass is decided otherwise.
    Differs,
    /// A pass needs answers that were not recorded.
    WouldAsk,
    /// The policy breaks its contract.
    Fault,
    /// A pass cannot be judged.
    Unfinished,
}

impl Replay {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        match &self.driver {
            Some(driver) => driver::run(driver, &self, format),
            None => policies::run(&self, format),
        }
    }
}
