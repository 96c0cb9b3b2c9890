//! Applying manifests: create, or merge into what stands there. Unknown fields are refused, not dropped.

use std::time::Duration;

use futures::StreamExt as _;
use polity_core::call::{Scope, WatchEvent};
use polity_core::contract::{Code, Failure, Kind};
use polity_core::object::Object;
use serde_json::Value;

use crate::Cluster;
use crate::write::MANAGER;

/// How long a new CRD may take to be served.
const ESTABLISHED: Duration = Duration::from_secs(30);
const STRICT: (&str, &str) = ("fieldValidation", "Strict");

/// What applying an object did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was not there.
    Created,
    /// It was there and is another now.
    Changed,
    /// It was there just so.
    Unchanged,
}

impl Cluster {
    /// Creates an object, or merges it into the one that stands at its name.
    pub async fn apply(&self, object: &Value) -> Result<Applied, Failure> {
        let created = self.create(object, &[MANAGER, STRICT]).await;
        match created {
            Err(failure) if failure.code == Code::AlreadyExists => {}
            other => return other.map(|_| Applied::Created),
        }
        let reference = Object::new(object.clone()).reference();
        let before = self.get(&reference).await?;
        let after = self.merge(&reference, None, object, &[MANAGER, STRICT]).await?;
        let same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"];
        Ok(if same {
            Applied::Unchanged
        } else {
            Applied::Changed
        })
    }

    /// Waits until a CustomResourceDefinition is served.
    pub async fn wait_established(&self, name: &str) -> Result<(), Failure> {
        let kind = Kind {
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
        };
        let scope = Scope {
            kind,
            namespace: None,
            name: Some(name.to_owned()),
            node: None,
            fields: Vec::new(),
        };
        let waited = tokio::time::timeout(ESTABLISHED, async {
            let mut events = std::pin::pin!(self.watch(scope));
            while let Some(event) = events.next().await {
                let established = match &event {
                    WatchEvent::Applied(object) => is_established(object),
                    WatchEvent::Listed { objects, .. } => objects.iter().any(is_established),
                    _ => false,
                };
                if established {
                    return;
                }
            }
        });
        waited.await.map_err(|_| {
            Failure::new(
                Code::DeadlineExceeded,
                format!("the CustomResourceDefinition {name} is not served in time"),
            )
        })
    }
}

fn is_established(crd: &Object) -> bool {
    crd.value()["status"]["conditions"].as_array().is_some_and(|all| {
        all.iter()
            .any(|c| c["type"] == "Established" && c["status"] == "True")
    })
}
