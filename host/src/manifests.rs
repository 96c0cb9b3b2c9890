//! Manifest files: what `run` is given, in the order in which it is applied.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize as _;
use serde_json::Value;

use crate::bindings::is_binding;
use crate::scenario::{self, Scenario};

/// Everything that the given files hold.
#[derive(Default)]
pub struct Manifests {
    /// Bindings.
    pub bindings: Vec<Value>,
    /// Other objects: CRDs, then namespaces, then the rest, each as in the files.
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
        all.objects.sort_by_key(rank);
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

fn rank(object: &Value) -> u8 {
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
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
