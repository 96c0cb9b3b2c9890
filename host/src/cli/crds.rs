//! `polity crds`: the CustomResourceDefinitions, ready for `kubectl apply -f -`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use polity_core::binding::PolicySource;
use polity_sandbox::Allocation;

use crate::policies::Policies;
use crate::progress::{Format, say, show};

/// Print the CustomResourceDefinitions of bindings and policies, ready for `kubectl apply -f -`.
#[derive(Debug, Args)]
pub(super) struct Crds {
    /// Policies whose CustomResourceDefinitions are printed too: wasm files, or folders of policy crates,
    /// which cargo builds.
    #[arg(value_name = "POLICY")]
    policies: Vec<PathBuf>,
}

impl Crds {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        show(&crate::crds::policy_binding(), format)?;
        let sandbox = super::sandbox(Allocation::default())?;
        for path in &self.policies {
            let folder = path
                .parent()
                .filter(|p| !p.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            let (file, krate) = if path.is_dir() { (None, name) } else { (name, None) };
            let source = PolicySource {
                file,
                krate,
                sha256: None,
                configuration: None,
                writes: None,
            };
            let policies = Policies::new(
                sandbox.clone(),
                folder,
                true,
                Box::new(move |message| say(format, message)),
            );
            let (policy, _) = policies.load(&source)?;
            let manifest = policy.manifest();
            let carried = crate::crds::carried(manifest);
            for crd in carried.map_err(|why| anyhow!("{}: {why}", manifest.name))? {
                show(&crd, format)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
