//! `polity completions`: completions for a shell.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

/// Print completions for a shell.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::Cli::command(), "polity", &mut script);
        crate::progress::print(&String::from_utf8(script)?.trim_end());
        Ok(ExitCode::SUCCESS)
    }
}
