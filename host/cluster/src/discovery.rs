//! Which kinds are served, and how: asked for once, and again when a kind is missing.

use std::collections::BTreeMap;

use polity_core::contract::{Code, Failure, Kind};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::Cluster;
use crate::error::Verb;
use crate::path::{self, Resource};

/// Kinds that are known to be served.
#[derive(Default)]
pub(crate) struct Discovery(Mutex<BTreeMap<Kind, Resource>>);

impl Cluster {
    /// How a kind is served; `unimplemented` if it is not.
    pub(crate) async fn resource(&self, kind: &Kind) -> Result<Resource, Failure> {
        let mut known = self.discovery.0.lock().await;
        if let Some(resource) = known.get(kind) {
            return Ok(resource.clone());
        }
        let root = path::root(&kind.api_version);
        let what = format!("discovery of {}", kind.api_version);
        let list = match self.call(Verb::Read, &what, "GET", &root, None).await {
            Err(failure) if failure.code == Code::NotFound => Value::Null,
            other => other?,
        };
        for resource in list["resources"].as_array().into_iter().flatten() {
            let (Some(name), Some(served)) = (resource["name"].as_str(), resource["kind"].as_str()) else {
                continue;
            };
            if !name.contains('/') {
                let kind = Kind {
                    api_version: kind.api_version.clone(),
                    kind: served.to_owned(),
                };
                let namespaced = resource["namespaced"].as_bool().unwrap_or(false);
                known.insert(
                    kind,
                    Resource {
                        root: root.clone(),
                        plural: name.to_owned(),
                        namespaced,
                    },
                );
            }
        }
        known.get(kind).cloned().ok_or_else(|| {
            let message = format!(
                "the API server does not serve {} of {}",
                kind.kind, kind.api_version
            );
            Failure::new(Code::Unimplemented, message)
        })
    }
}
