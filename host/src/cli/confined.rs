//! `polity confined`: the process that a host starts to work on untrusted bytes. People do not call it.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use polity_sandbox::Bounds;

use super::run::Memory;

/// Work on untrusted bytes in a confined process. The process reads its input from standard input and writes
/// the result to standard output.
#[derive(Debug, Args)]
pub(super) struct Task {
    /// The limit of processor time in seconds.
    #[arg(long)]
    processor: u64,
    /// The limit of address space in bytes.
    #[arg(long)]
    memory: u64,
    /// The limit of the answer in bytes.
    #[arg(long)]
    answer: u64,
    #[command(subcommand)]
    work: Work,
}

#[derive(Debug, Subcommand)]
enum Work {
    /// Compile a policy.
    Compile {
        /// How memory for the policy's steps is allocated.
        #[arg(value_enum)]
        sandbox: Memory,
    },
}

impl Task {
    pub(super) fn run(self) -> ExitCode {
        let bounds = Bounds {
            processor: Duration::from_secs(self.processor),
            memory: self.memory,
            answer: self.answer,
        };
        // Nobody reads the message of a panic here, and a backtrace would exceed the memory limit.
        std::panic::set_hook(Box::new(|_| {}));
        match self.work {
            Work::Compile { sandbox } => polity_sandbox::compile_confined(sandbox.into(), bounds),
        }
    }
}
