//! `polity confined`: what the host starts to have work done on bytes that nobody vouches for. Nobody calls it by hand.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use polity_sandbox::Bounds;

use super::run::Memory;
use crate::configuration;

/// Work that a host wants done in a process of its own: it reads its input and writes what came of it.
#[derive(Debug, Args)]
pub(super) struct Task {
    /// Seconds of processor time.
    #[arg(long)]
    processor: u64,
    /// Bytes of address space.
    #[arg(long)]
    memory: u64,
    /// Bytes of the answer.
    #[arg(long)]
    answer: u64,
    #[command(subcommand)]
    work: Work,
}

#[derive(Debug, Subcommand)]
enum Work {
    /// Compile a policy.
    Compile {
        /// Where the memory of its steps will come from.
        #[arg(value_enum)]
        sandbox: Memory,
    },
    /// Check a configuration against a schema.
    Configuration,
}

impl Task {
    pub(super) fn run(self) -> ExitCode {
        let bounds = Bounds {
            processor: Duration::from_secs(self.processor),
            memory: self.memory,
            answer: self.answer,
        };
        // Nobody reads the words of a panic here, and a backtrace takes more memory than there is.
        std::panic::set_hook(Box::new(|_| {}));
        match self.work {
            Work::Compile { sandbox } => polity_sandbox::compile_confined(sandbox.into(), bounds),
            Work::Configuration => configuration::answer(bounds),
        }
    }
}
