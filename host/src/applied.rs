//! Remembers which manifests were applied to a data folder. A restart applies a manifest again only if the
//! manifest has changed, so changes that people made to the objects since then stay.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use polity_core::object::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::data::Data;
use crate::display::hex;

/// The file in the data folder that holds the digests.
const FILE: &str = "applied";

/// The digest of each applied manifest, by its object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied(BTreeMap<String, String>);

impl Applied {
    /// Reads the manifests that earlier processes applied.
    pub(crate) fn read(data: &Data) -> Result<Self> {
        let text = data.read(FILE);
        let text = text.with_context(|| format!("cannot read {FILE} in the data folder"))?;
        let applied = text.map(|text| serde_json::from_str(&text)).transpose();
        let applied =
            applied.with_context(|| format!("{FILE} in the data folder is not a list of manifests; remove the file to apply all manifests again"))?;
        Ok(applied.unwrap_or_default())
    }

    /// Saves the digests for later processes.
    pub(crate) fn save(&self, data: &Data) -> Result<()> {
        let text = serde_json::to_string(self)?;
        data.replace(FILE, &text)
            .context("cannot save which manifests were applied")
    }

    /// Whether this very manifest was applied.
    pub(crate) fn has(&self, manifest: &Value) -> bool {
        self.0.get(&of(manifest)) == Some(&digest(manifest))
    }

    /// Notes that a manifest was applied.
    pub(crate) fn note(&mut self, manifest: &Value) {
        self.0.insert(of(manifest), digest(manifest));
    }
}

/// The object that a manifest describes. The API version is left out: it does not identify an object.
fn of(manifest: &Value) -> String {
    let object = Object::new(manifest.clone()).reference();
    let group = object
        .kind
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group);
    let namespace = object.namespace.unwrap_or_default();
    format!("{group}/{} {namespace}/{}", object.kind.kind, object.name)
}

fn digest(manifest: &Value) -> String {
    hex(&Sha256::digest(manifest.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_manifest_is_known_by_what_it_is_of_and_known_again_only_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = Data::open(folder.path()).expect("a data folder");
        let pod = |name: &str, image: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": name}, "spec": image});
        let mut applied = Applied::read(&data).expect("none");
        applied.note(&pod("one", "old"));
        applied.note(&pod("two", "old"));
        applied.note(&pod("one", "new"));
        applied.save(&data).expect("saved");
        let known = Applied::read(&data).expect("two");
        let has = |name, image| known.has(&pod(name, image));
        assert!(has("one", "new") && has("two", "old"));
        assert!(!has("one", "old") && !has("three", "new"));
    }
}
