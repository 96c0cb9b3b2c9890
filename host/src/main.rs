//! Parse, call, print the error chain once, exit code.

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    polity::cli::Cli::parse().run()
}
