//! `polity policy`: makes and builds policies, and shows what they say of themselves.

mod build;
mod diff;
mod inspect;
mod new;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Subcommand};
use polity_core::binding::PolicySource;

use crate::policies::Policies;
use crate::private::folder_of;
use crate::progress::{Format, say};

/// Make and build policies, and look at them before they are rolled out.
#[derive(Debug, Args)]
pub(super) struct Policy {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Build(build::Build),
    Diff(diff::Diff),
    Inspect(inspect::Inspect),
    New(new::New),
    Vendor(new::Vendor),
}

impl Policy {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        match self.command {
            PolicyCommand::Build(build) => build.run(format),
            PolicyCommand::Diff(diff) => diff.run(format),
            PolicyCommand::Inspect(inspect) => inspect.run(format),
            PolicyCommand::New(new) => new.run(format),
            PolicyCommand::Vendor(vendor) => vendor.run(format),
        }
    }
}

/// Loads a policy: a wasm file, or the folder of a crate, which cargo builds.
pub(super) fn load(path: &Path, format: Format) -> Result<(Arc<polity_sandbox::Policy>, Arc<[u8]>)> {
    let (policies, source) = named(path, format)?;
    policies.load(&source)
}

/// A wasm file, or the folder of a crate, as a source in the folder above it, and what loads it from there.
pub(super) fn named(path: &Path, format: Format) -> Result<(Policies, PolicySource)> {
    // `.` has no name of its own.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let (file, krate) = if path.is_dir() { (None, name) } else { (name, None) };
    let source = PolicySource {
        krate,
        ..of_file(file)
    };
    Ok((in_folder(folder_of(&path), format)?, source))
}

/// What loads policies from a folder.
pub(super) fn in_folder(folder: &Path, format: Format) -> Result<Policies> {
    let sandbox = super::sandbox(polity_sandbox::Allocation::default())?;
    let report = Box::new(move |message: &str| say(format, message));
    Ok(Policies::new(sandbox, folder, true, report))
}

/// A policy of a recording as a source.
pub(super) fn of_digest(digest: &str) -> PolicySource {
    of_file(Some(format!("{digest}.wasm")))
}

/// A file of the folder as a source.
pub(super) fn of_file(file: Option<String>) -> PolicySource {
    PolicySource {
        file,
        krate: None,
        sha256: None,
        configuration: None,
        writes: None,
    }
}
