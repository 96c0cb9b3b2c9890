//! Manifest files: what `run` is given, read and applied.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use polity_cluster::Cluster;
use polity_core::object::Object;
use serde::Deserialize as _;
use serde_json::Value;

use crate::bindings::{self, is_binding};
use crate::clouds::Clouds;
use crate::crds;
use crate::policies::Policies;
use crate::scenario::{self, Scenario};

/// Everything that the given files hold.
#[derive(Default)]
pub struct Manifests {
    /// Bindings.
    pub bindings: Vec<Value>,
    /// Other objects, as in the files.
    pub objects: Vec<Value>,
    /// At most one scenario.
    pub scenario: Option<Scenario>,
    /// The folder that paths in bindings start from: that of the first argument.
    pub folder: Option<PathBuf>,
}

impl Manifests {
    /// Reads files, and folders with their `.yaml`, `.yml` and `.json` files in the order of names.
    pub fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut all = Manifests::default();
        for path in paths {
            let folder = if path.is_dir() {
                path.clone()
            } else {
                path.parent().unwrap_or(Path::new(".")).into()
            };
            all.folder.get_or_insert(folder);
            for file in files(path)? {
                all.read_file(&file)?;
            }
        }
        Ok(all)
    }

    fn read_file(&mut self, file: &Path) -> Result<()> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        for (number, document) in serde_yaml_ng::Deserializer::from_str(&text).enumerate() {
            let at = || format!("{}, document {}", file.display(), number + 1);
            let value = Value::deserialize(document).with_context(at)?;
            if value.is_null() {
                continue;
            }
            if value["apiVersion"] == scenario::API_VERSION && value["kind"] == scenario::KIND {
                let scenario: Scenario = serde_path_to_error::deserialize(value)
                    .map_err(|e| anyhow!("{}: {}", e.path(), e.inner()))
                    .with_context(at)?;
                if self.scenario.replace(scenario).is_some() {
                    bail!("{}: there is more than one scenario", at());
                }
            } else if is_binding(&value) {
                self.bindings.push(value);
            } else if value["kind"].is_string() && value["metadata"]["name"].is_string() {
                self.objects.push(value);
            } else {
                bail!("{}: no object: it needs apiVersion, kind and metadata.name", at());
            }
        }
        Ok(())
    }
}

impl Manifests {
    /// Builds the crates that bindings name, now or in the course of the scenario. What cannot be built is said when
    /// they are applied.
    pub async fn build(&self, policies: &Arc<Policies>) {
        let later = self.scenario.iter().flat_map(Scenario::bindings);
        for binding in self.bindings.iter().chain(later) {
            let (policies, binding) = (policies.clone(), binding.clone());
            let built = tokio::task::spawn_blocking(move || bindings::build(&policies, &binding));
            // A panic of it comes again when the binding is loaded.
            let _ = built.await;
        }
    }

    /// Applies everything but the scenario: CRDs first, those of the bindings' policies among them. `own_crds`: the
    /// host's own even if there is no binding.
    pub async fn apply(
        &self,
        cluster: &Cluster,
        policies: &Arc<Policies>,
        clouds: &Arc<Clouds>,
        own_crds: bool,
        says: &(dyn Fn(&str) + Sync),
    ) -> Result<()> {
        let mut definitions = Vec::new();
        if own_crds || !self.bindings.is_empty() {
            definitions.push(crds::policy_binding());
        }
        for binding in &self.bindings {
            // A binding that does not load is applied all the same: its status says what is wrong.
            let (policies, clouds, object) = (policies.clone(), clouds.clone(), Object::new(binding.clone()));
            let loaded =
                tokio::task::spawn_blocking(move || bindings::load(&policies, &clouds, &object)).await?;
            match loaded {
                Ok(ready) => definitions.extend(
                    ready
                        .binding
                        .policies
                        .values()
                        .flat_map(|policy| policy.manifest.crds().cloned()),
                ),
                Err(e) => says(&format!("binding {}: {e:#}", binding["metadata"]["name"])),
            }
        }
        let crds = self.objects.iter().filter(|object| rank(object) == CRD);
        for definition in definitions.iter().chain(crds) {
            apply(cluster, definition).await?;
            let name = definition["metadata"]["name"].as_str().unwrap_or_default();
            cluster.wait_established(name).await.map_err(|f| anyhow!("{f}"))?;
        }
        let of = |wanted| self.objects.iter().filter(move |object| rank(object) == wanted);
        for object in of(NAMESPACE).chain(&self.bindings).chain(of(REST)) {
            apply(cluster, object).await?;
        }
        Ok(())
    }
}

async fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    let applied = cluster.apply(object).await;
    applied.map(|_| ()).map_err(|failure| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        anyhow!("{failure}").context(format!("cannot apply {kind} {name}"))
    })
}

/// The order in which objects are applied.
const CRD: u8 = 0;
const NAMESPACE: u8 = 1;
const REST: u8 = 2;

fn rank(object: &Value) -> u8 {
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") => CRD,
        Some("Namespace") => NAMESPACE,
        _ => REST,
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        std::fs::read_dir(path).with_context(|| format!("cannot read the folder {}", path.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            file.extension()
                .is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
        })
        .collect();
    files.sort();
    match files.is_empty() {
        true => bail!("{} holds no manifests (.yaml, .yml, .json)", path.display()),
        false => Ok(files),
    }
}
