//! `polity crds`: the CustomResourceDefinitions, ready for `kubectl apply -f -`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;

use super::policy::load;
use crate::progress::{Format, show};

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
        show(&crate::crds::cloud_connection(), format)?;
        for path in &self.policies {
            let (policy, _) = load(path, format)?;
            let manifest = policy.manifest();
            let carried = crate::crds::carried(manifest);
            for crd in carried.map_err(|why| anyhow!("{}: {why}", manifest.name))? {
                show(&crd, format)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
