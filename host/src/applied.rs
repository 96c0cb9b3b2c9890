//! Which manifests were applied to the objects of a data folder, so that a restart leaves alone what people have changed
//! since: a manifest is applied again only after it has changed itself.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use polity_core::object::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::data::Data;
use crate::display::hex;

/// The file in the data folder that remembers them.
const FILE: &str = "applied";

/// Manifests by what they are of, each by its digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied(BTreeMap<String, String>);

impl Applied {
    /// Those that earlier processes applied.
    pub(crate) fn read(data: &Data) -> Result<Self> {
        let text = data.read(FILE);
        let text = text.with_context(|| format!("cannot read {FILE} in the data folder"))?;
        let applied = text.map(|text| serde_json::from_str(&text)).transpose();
        let applied =
            applied.with_context(|| format!("{FILE} in the data folder is no list of manifests"))?;
        Ok(applied.unwrap_or_default())
    }

    /// Remembers them, for the processes to come.
    pub(crate) fn save(&self, data: &Data) -> Result<()> {
        let text = serde_json::to_string(self)?;
        data.replace(FILE, &text)
            .context("what was applied is not remembered")
    }

    /// Whether a manifest was applied as it is.
    pub(crate) fn has(&self, manifest: &Value) -> bool {
        self.0.get(&of(manifest)) == Some(&digest(manifest))
    }

    /// It is applied now.
    pub(crate) fn note(&mut self, manifest: &Value) {
        self.0.insert(of(manifest), digest(manifest));
    }
}

/// What a manifest is of, with the version left out as in Kubernetes.
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
