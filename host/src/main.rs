//! The `polity` command: parses its arguments, runs it, and sets the exit code.

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    polity::cli::Cli::parse().run()
}
