//! The SDK, as this program brings it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;

use super::write;
use crate::progress::{Format, print, print_json};

/// The files of the packages, by their paths in the repository of Polity.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/vendored.rs"));
/// What these packages inherit.
const WORKSPACE: &str = include_str!(concat!(env!("OUT_DIR"), "/Cargo.toml"));
/// The folder in the repository of a policy.
pub(super) const FOLDER: &str = "vendor";

/// Write the SDK that this program brings into a policy's folder `vendor`, in place of the one that is there.
///
/// Example, after another version of polity was installed:
///
///   polity policy vendor && cargo test
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli::policy) struct Vendor {
    /// The folder of the policy's repository.
    #[arg(value_name = "DIR", default_value = ".")]
    repository: PathBuf,
}

impl Vendor {
    pub(in crate::cli::policy) fn run(self, format: Format) -> Result<ExitCode> {
        let folder = self.repository.join(FOLDER);
        if !folder.join("policies/sdk").is_dir() {
            bail!(
                "{} does not hold the SDK of Polity; name the folder of a policy that `polity policy new` made",
                folder.display()
            );
        }
        let (new, old) = (
            self.repository.join(".vendor.new"),
            self.repository.join(".vendor.old"),
        );
        // Whoever wrote the repository may have made a link of this name; the link alone goes.
        let _ = fs::remove_dir_all(&new);
        let made = fs::create_dir(&new).with_context(|| format!("cannot make the folder {}", new.display()));
        let written = made.and_then(|()| write_sdk(&new));
        let written = written.and_then(|()| Ok(fs::rename(&folder, &old)?));
        let written = written.and_then(|()| Ok(fs::rename(&new, &folder)?));
        if written.is_err() {
            // What is left over is in the way of nothing but the next try.
            let _ = fs::remove_dir_all(&new);
        }
        written.with_context(|| format!("cannot replace {}", folder.display()))?;
        fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        let version = env!("CARGO_PKG_VERSION");
        match format {
            Format::Json => print_json(&json!({"folder": folder, "version": version})),
            Format::Text => print(&format!("{} has the SDK of polity {version}", folder.display())),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the packages into a folder.
pub(super) fn write_sdk(folder: &Path) -> Result<()> {
    write(&folder.join("Cargo.toml"), WORKSPACE)?;
    FILES
        .iter()
        .try_for_each(|(name, text)| write(&folder.join(name), text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_the_repository_leads_nothing_that_is_written_elsewhere() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        for folder in ["victim", "repository/vendor/policies/sdk"] {
            fs::create_dir_all(at(folder)).expect("made");
        }
        fs::write(at("victim/Cargo.toml"), "precious").expect("written");
        symlink(at("victim"), at("repository/.vendor.new")).expect("linked");
        let vendor = Vendor {
            repository: at("repository"),
        };
        vendor.run(Format::Json).expect("it is written");
        assert_eq!(
            fs::read_to_string(at("victim/Cargo.toml")).expect("read"),
            "precious"
        );
        assert_eq!(fs::read_dir(at("victim")).expect("read").count(), 1);
        assert_eq!(
            fs::read_to_string(at("repository/vendor/Cargo.toml")).expect("read"),
            WORKSPACE
        );
    }
}
