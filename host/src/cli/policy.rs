//! `polity policy`: what a policy says of itself, before it is rolled out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use polity_core::binding::PolicySource;
use polity_core::contract::wit::PACKAGE as CONTRACT;
use polity_core::contract::{Kind, Need};
use serde_json::{Value, json};

use crate::crds::{carried, defined};
use crate::display::printable;
use crate::policies::Policies;
use crate::private::folder_of;
use crate::progress::{Format, print, print_json, say};

/// Look at policies before they are rolled out.
#[derive(Debug, Args)]
pub(super) struct Policy {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Inspect(Inspect),
}

/// Show what a policy says of itself: role, needs, writes, configuration, size and memory.
///
/// The policy is loaded as by a host, so a policy that a host would refuse is refused here.
#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// A wasm file, or the folder of a policy crate, which cargo builds.
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
}

impl Policy {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        match self.command {
            PolicyCommand::Inspect(inspect) => inspect.run(format),
        }
    }
}

impl Inspect {
    fn run(self, format: Format) -> Result<ExitCode> {
        let (policy, bytes) = load(&self.policy, format)?;
        let manifest = policy.manifest();
        let crds = carried(manifest).map_err(|why| anyhow!("{}: {why}", manifest.name))?;
        let crds: Vec<String> = crds
            .iter()
            .map(defined)
            .map(|(group, kind)| format!("{kind}.{group}"))
            .collect();
        if format == Format::Json {
            print_json(&json!({
                "sha256": &*policy.id().0, "bytes": bytes.len(), "memory": policy.memory(),
                "contract": CONTRACT, "manifest": &**manifest,
            }));
            return Ok(ExitCode::SUCCESS);
        }
        let line = |what: &str, text: &str| print(&format!("{what:<14}{}", printable(text)));
        let list = |what: &str, all: Vec<String>| {
            let mut what = what;
            for one in &all {
                line(what, one);
                what = "";
            }
            if all.is_empty() {
                line(what, "-");
            }
        };
        line("policy", &format!("{} {}", manifest.name, manifest.version));
        line("role", manifest.role.as_str());
        line("contract", CONTRACT);
        line("sha256", &policy.id().0);
        line("size", &format!("{} KiB", bytes.len().div_ceil(1 << 10)));
        line(
            "memory",
            &format!(
                "{} KiB at the beginning of each step",
                policy.memory().div_ceil(1 << 10)
            ),
        );
        list("governs", manifest.governs.iter().map(kind_of).collect());
        list("needs", manifest.needs.iter().map(need).collect());
        list("writes", manifest.writes.clone());
        line("finalizer", manifest.finalizer.as_deref().unwrap_or("-"));
        list("definitions", crds);
        line("edges", &manifest.edges.len().to_string());
        list("configuration", fields(&manifest.config_schema));
        Ok(ExitCode::SUCCESS)
    }
}

/// The fields of a configuration with their descriptions. A field without a default must be given.
fn fields(schema: &Value) -> Vec<String> {
    let required = schema["required"].as_array();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let field = |(name, schema): (&String, &Value)| {
        let is_required = required.is_some_and(|required| required.contains(&json!(name)));
        let default = match &schema["default"] {
            Value::Null if is_required => " (required)".to_owned(),
            Value::Null => String::new(),
            default => format!(" (default {default})"),
        };
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let description = schema["description"].as_str();
        let description = description.map(|text| format!(": {}", words(text)));
        format!("{name}{default}{}", description.unwrap_or_default())
    };
    properties.map(field).collect()
}

/// A need as a binding grants it: `cloud vm.get`, `create v1 Pod`.
fn need(need: &Need) -> String {
    let (verb, of) = match need {
        Need::Objects(kind) => ("ask", kind_of(kind)),
        Need::Secrets => ("secrets", String::new()),
        Need::Cloud(operation) => ("cloud", operation.clone()),
        Need::Lock(name) => ("lock", name.clone()),
        Need::Credential => ("credential", String::new()),
        Need::Create(kind) => ("create", kind_of(kind)),
        Need::Patch(kind) => ("patch", kind_of(kind)),
        Need::Delete(kind) => ("delete", kind_of(kind)),
        Need::Evict => ("evict", String::new()),
        Need::Mint(kind) => ("mint", kind.clone()),
        Need::Reachable => ("reachable", String::new()),
    };
    format!("{verb} {of}").trim_end().to_owned()
}

fn kind_of(kind: &Kind) -> String {
    format!("{} {}", kind.api_version, kind.kind)
}

/// Loads a policy: a wasm file, or the folder of a crate, which cargo builds.
pub(super) fn load(path: &Path, format: Format) -> Result<(Arc<polity_sandbox::Policy>, Arc<[u8]>)> {
    let (policies, source) = named(path, format)?;
    policies.load(&source)
}

/// A wasm file, or the folder of a crate, as a source in the folder above it, and what loads it from there.
pub(super) fn named(path: &Path, format: Format) -> Result<(Policies, PolicySource)> {
    let sandbox = super::sandbox(polity_sandbox::Allocation::default())?;
    // `.` has no name of its own.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = folder_of(&path);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let (file, krate) = if path.is_dir() { (None, name) } else { (name, None) };
    let source = PolicySource {
        file,
        krate,
        sha256: None,
        configuration: None,
        writes: None,
    };
    let report = Box::new(move |message: &str| say(format, message));
    Ok((Policies::new(sandbox, folder, true, report), source))
}
