//! `polity policy inspect`: what a policy or a driver says of itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use polity_core::binding::Limits;
use polity_core::contract::wit::PACKAGE as CONTRACT;
use polity_core::contract::{Kind, Need, Origin, Pass, RetryClass, RetryRequest, Role, driver};
use polity_sandbox::Policy;
use polity_sandbox::driver::Driver;
use serde_json::{Value, json};

use super::named;
use crate::configuration::configuration;
use crate::crds::{carried, defined};
use crate::display::printable;
use crate::packed::packed;
use crate::policies::Loaded;
use crate::progress::{Format, print, print_json};

/// Show what a policy says of itself: role, imports, needs, writes, configuration, size and memory.
///
/// The policy is loaded as by a host, so a policy that a host would refuse is refused here. The driver of a cloud can be
/// inspected too.
#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// A wasm file, which may be packed by gzip, or the folder of a crate, which cargo builds.
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
}

impl Inspect {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        Inspected::load(&self.policy, format)?.show(format, json!({}))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A policy or a driver, and its bytes.
pub(super) struct Inspected {
    loaded: Loaded,
    pub(super) wasm: Vec<u8>,
    /// The bytes as a gzip file.
    pub(super) packed: Vec<u8>,
}

impl Inspected {
    /// Loads a wasm file or the folder of a crate.
    pub(super) fn load(path: &Path, format: Format) -> Result<Self> {
        let (policies, source) = named(path, format)?;
        let (loaded, wasm) = policies.policy_or_driver(&source)?;
        Ok(Inspected {
            loaded,
            packed: packed(&wasm)?,
            wasm,
        })
    }

    /// Prints what there is to say. In JSON it has these fields, too.
    pub(super) fn show(&self, format: Format, mut fields: Value) -> Result<()> {
        fields["bytes"] = json!(self.wasm.len());
        fields["gzipBytes"] = json!(self.packed.len());
        match &self.loaded {
            Loaded::Policy(policy) => self.show_policy(policy, format, fields),
            Loaded::Driver(driver) => self.show_driver(driver, format, fields),
        }
    }

    fn show_policy(&self, policy: &Policy, format: Format, mut fields: Value) -> Result<()> {
        let manifest = policy.manifest();
        let crds = carried(manifest).map_err(|why| anyhow!("{}: {why}", manifest.name))?;
        let crds: Vec<String> = crds
            .iter()
            .map(defined)
            .map(|(group, kind)| format!("{kind}.{group}"))
            .collect();
        if format == Format::Json {
            fields["sha256"] = json!(&*policy.id().0);
            fields["imports"] = json!(policy.imports());
            fields["memory"] = json!(policy.memory());
            fields["firstStepFuel"] = json!(first_step(policy));
            fields["contract"] = json!(CONTRACT);
            fields["manifest"] = json!(&**manifest);
            print_json(&fields);
            return Ok(());
        }
        line("policy", &format!("{} {}", manifest.name, manifest.version));
        line("role", manifest.role.as_str());
        line("contract", CONTRACT);
        self.show_bytes(&policy.id().0);
        line(
            "memory",
            &format!("{} at the beginning of each step", kib(policy.memory())),
        );
        let fuel = first_step(policy).map(|fuel| format!("{fuel} for the first step of a bare object"));
        line(
            "fuel",
            fuel.as_deref().unwrap_or("- (its configuration has no defaults)"),
        );
        list("imports", policy.imports());
        list("governs", manifest.governs.iter().map(kind_of).collect());
        list("needs", manifest.needs.iter().map(need).collect());
        list("writes", manifest.writes.clone());
        line("finalizer", manifest.finalizer.as_deref().unwrap_or("-"));
        list("definitions", crds);
        line("edges", &manifest.edges.len().to_string());
        list("configuration", self::fields(&manifest.config_schema));
        Ok(())
    }

    fn show_driver(&self, driver: &Driver, format: Format, mut fields: Value) -> Result<()> {
        let manifest: driver::Manifest =
            serde_json::from_str(driver.manifest()).context("the manifest of the driver cannot be read")?;
        if format == Format::Json {
            fields["sha256"] = json!(&**driver.digest());
            fields["imports"] = json!(driver.imports());
            fields["manifest"] = serde_json::to_value(&manifest)?;
            print_json(&fields);
            return Ok(());
        }
        line("driver", &format!("{} {}", manifest.name, manifest.version));
        self.show_bytes(driver.digest());
        list("imports", driver.imports());
        let services = manifest.implements.iter();
        list(
            "implements",
            services
                .flat_map(|one| {
                    let of = |operation: &String| format!("{} {operation}", one.service);
                    one.operations.iter().map(of)
                })
                .collect(),
        );
        list("endpoints", manifest.endpoints.keys().cloned().collect());
        list("configuration", self::fields(&manifest.config_schema));
        Ok(())
    }

    fn show_bytes(&self, digest: &str) {
        line("sha256", digest);
        let [wasm, packed] = [&self.wasm, &self.packed].map(|bytes| kib(bytes.len() as u64));
        line("size", &format!("{wasm}, by gzip {packed}"));
    }
}

/// The fuel of the first step of an object of which only the name is given, or of a first retry, with the defaults of the
/// configuration. `None` if they are no configuration.
fn first_step(policy: &Policy) -> Option<u64> {
    let manifest = policy.manifest();
    let config = configuration(manifest, None).ok()?.to_string();
    let limits = Limits::default();
    let kind = manifest.governs.first().cloned().unwrap_or_else(|| Kind {
        api_version: "example/v1".to_owned(),
        kind: "Example".to_owned(),
    });
    if policy.role() == Role::Retry {
        let request = RetryRequest {
            kind,
            namespace: None,
            origin: Origin::Lifecycle,
            class: RetryClass::Short,
            failure: None,
            attempt: 1,
            failing_for: 0,
            previous_wait: None,
            seed: 0,
            config: config.into(),
        };
        return Some(policy.decide(&request, &limits).1);
    }
    let metadata = json!({"name": "bare", "uid": "00000000-0000-4000-8000-000000000000"});
    let object = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {}});
    let pass = Pass {
        object: Some(object.to_string().into()),
        now: 0,
        causes: Vec::new(),
        attempt: 0,
        config: config.into(),
        pending: Vec::new(),
        journal: Vec::new(),
    };
    Some(policy.step(&pass, &limits).fuel)
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1 << 10))
}

/// Prints a line that begins with a word.
pub(super) fn line(what: &str, text: &str) {
    print(&format!("{what:<14}{}", printable(text)));
}

/// Prints a line for each item.
pub(super) fn list(what: &str, all: Vec<String>) {
    if all.is_empty() {
        line(what, "-");
    }
    for (index, one) in all.iter().enumerate() {
        line(if index == 0 { what } else { "" }, one);
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
pub(super) fn need(need: &Need) -> String {
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
