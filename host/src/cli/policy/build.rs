//! `polity policy build`: the files of a policy, as a deployment takes them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;

use super::inspect::{Inspected, list};
use super::named;
use crate::private::write_for_all;
use crate::progress::Format;

/// Build the crate of a policy or a driver: NAME.wasm, and the smaller NAME.wasm.gz, which a host reads as well.
///
/// Cargo builds the crate as a host does for `crate:` in a binding. Then the policy is loaded as by a host, and what it says
/// of itself is printed as by `polity policy inspect`. The same source makes the same files again.
#[derive(Debug, Args)]
pub(super) struct Build {
    /// The folder of the crate.
    #[arg(value_name = "DIR", default_value = ".")]
    krate: PathBuf,
    /// The folder to which the files are written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

impl Build {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let (policies, source) = named(&self.krate, format)?;
        let Some(krate) = source.krate else {
            bail!(
                "{} is not a folder; expected the folder of a policy crate",
                self.krate.display()
            );
        };
        let built = policies.build(&krate)?;
        let inspected = Inspected::load(&built, format)?;
        let name = built.file_name().unwrap_or_default().to_string_lossy();
        // Cargo calls the file as Rust calls the crate.
        let name = name.replace('_', "-");
        let cannot = |path: &PathBuf| format!("cannot write {}", path.display());
        std::fs::create_dir_all(&self.out).with_context(|| cannot(&self.out))?;
        let [wasm, packed] = [name.clone(), format!("{name}.gz")].map(|name| self.out.join(name));
        // A host that looks at the folder finds the old file or the new one.
        write_for_all(&wasm, &inspected.wasm).with_context(|| cannot(&wasm))?;
        write_for_all(&packed, &inspected.packed).with_context(|| cannot(&packed))?;
        let files = [wasm, packed].map(|path| path.display().to_string());
        if format == Format::Text {
            list("written", files.to_vec());
        }
        inspected.show(format, json!({"files": files}))?;
        Ok(ExitCode::SUCCESS)
    }
}
