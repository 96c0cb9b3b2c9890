//! Discovery: which kinds the API server serves, and under which paths. A group is asked for once, and asked
//! again when a kind is missing.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use polity_core::contract::{Code, Failure, Kind, ObjectRef};
use serde_json::Value;

use crate::Cluster;
use crate::error::Verb;
use crate::path::{self, Resource};

/// The kinds that the API server is known to serve.
#[derive(Default)]
pub(crate) struct Discovery(RwLock<BTreeMap<Kind, Resource>>);

impl Discovery {
    fn get(&self, kind: &Kind) -> Option<Resource> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(kind)
            .cloned()
    }

    /// Stores the kinds that one group and version serves.
    fn enter(&self, root: &str, list: &Value, api_version: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for resource in list["resources"].as_array().into_iter().flatten() {
            let (Some(plural), Some(kind)) = (resource["name"].as_str(), resource["kind"].as_str()) else {
                continue;
            };
            // `machines/status` is a subresource.
            if plural.contains('/') {
                continue;
            }
            let kind = Kind {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            };
            let resource = Resource {
                root: root.to_owned(),
                plural: plural.to_owned(),
                namespaced: resource["namespaced"].as_bool().unwrap_or(false),
            };
            known.insert(kind, resource);
        }
    }

    /// Forgets the group and version that this path belongs to. The server answered that it does not serve
    /// the path, so what is known is out of date.
    pub(crate) fn forget(&self, path: &str) {
        let lies_in = |resource: &Resource| {
            path.strip_prefix(&resource.root)
                .is_some_and(|p| p.starts_with('/'))
        };
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, resource| !lies_in(resource));
    }
}

impl Cluster {
    /// The plural name of a kind, and whether the kind is namespaced.
    ///
    /// # Errors
    /// `unimplemented` if the API server does not serve the kind.
    pub async fn served(&self, kind: &Kind) -> Result<(String, bool), Failure> {
        let resource = self.resource(kind).await?;
        Ok((resource.plural, resource.namespaced))
    }

    /// The CustomResourceDefinition of a kind, read now; `None` if the kind is built in or not served.
    ///
    /// # Errors
    /// The failure of the read, for example `permission-denied` or `unavailable`.
    pub async fn definition(&self, kind: &Kind) -> Result<Option<Value>, Failure> {
        let plural = match self.served(kind).await {
            Ok((plural, _)) => plural,
            Err(failure) if failure.code == Code::Unimplemented => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let Some((group, _)) = kind.api_version.split_once('/') else {
            return Ok(None);
        };
        let crd = ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: "apiextensions.k8s.io/v1".into(),
                kind: "CustomResourceDefinition".into(),
            },
            namespace: None,
            name: format!("{plural}.{group}"),
        };
        match self.get(&crd).await {
            Ok(crd) => Ok(Some(crd)),
            Err(failure) if matches!(failure.code, Code::NotFound | Code::Unimplemented) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// How the API server serves a kind.
    ///
    /// # Errors
    /// `unimplemented` if the API server does not serve the kind.
    pub(crate) async fn resource(&self, kind: &Kind) -> Result<Resource, Failure> {
        if let Some(resource) = self.discovery.get(kind) {
            return Ok(resource);
        }
        let root = path::root(&kind.api_version)?;
        let what = format!("discovery of {}", kind.api_version);
        let list = match self.call(Verb::Get, &what, &root, None).await {
            Err(failure) if failure.code == Code::Unimplemented => Value::Null,
            other => other?,
        };
        self.discovery.enter(&root, &list, &kind.api_version);
        self.discovery.get(kind).ok_or_else(|| {
            let message = format!(
                "the API server does not serve {} of {}",
                kind.kind, kind.api_version
            );
            Failure::new(Code::Unimplemented, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, kind, not_found, not_served};
    use serde_json::json;

    fn group(plural: &str) -> Reply {
        Reply::json(
            200,
            json!({"resources": [
                {"name": plural, "kind": "Widget", "namespaced": true},
                {"name": format!("{plural}/status"), "kind": "Widget", "namespaced": true},
            ]}),
        )
    }

    #[tokio::test]
    async fn a_kind_is_looked_up_once() {
        let fake = Fake::answering([group("widgets")]);
        let cluster = fake.cluster();
        for _ in 0..2 {
            let resource = cluster.resource(&kind("g/v1", "Widget")).await.expect("served");
            assert_eq!((resource.plural.as_str(), resource.namespaced), ("widgets", true));
        }
        assert_eq!(fake.paths(), ["GET /apis/g/v1"]);
    }

    #[tokio::test]
    async fn a_kind_that_is_not_served_is_named_and_looked_for_again() {
        let fake = Fake::answering([not_served(), group("widgets")]);
        let cluster = fake.cluster();
        let failure = cluster
            .resource(&kind("g/v1", "Widget"))
            .await
            .expect_err("not served");
        assert_eq!(failure.code, Code::Unimplemented);
        assert!(failure.message.contains("Widget of g/v1"), "{failure}");
        assert!(cluster.resource(&kind("g/v1", "Widget")).await.is_ok());
    }

    #[tokio::test]
    async fn a_kind_that_ceased_to_be_served_is_looked_up_again() {
        let fake = Fake::answering([group("widgets"), not_served(), group("gadgets"), not_found("w")]);
        let cluster = fake.cluster();
        let widget = crate::fake::reference("g/v1", "Widget", "a", "w");
        let gone = cluster.get(&widget).await.expect_err("not served");
        assert_eq!(gone.code, Code::Unimplemented);
        let absent = cluster.get(&widget).await.expect_err("not found");
        assert_eq!(absent.code, Code::NotFound);
        assert_eq!(
            fake.paths()[2..],
            ["GET /apis/g/v1", "GET /apis/g/v1/namespaces/a/gadgets/w"]
        );
    }

    #[tokio::test]
    async fn a_definition_is_found_by_the_plural_of_its_kind_and_built_in_kinds_have_none() {
        let definitions = || {
            Reply::json(
                200,
                json!({"resources": [
                    {"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": false},
                ]}),
            )
        };
        let crd = json!({"metadata": {"name": "widgets.g"}});
        let fake = Fake::answering([group("widgets"), definitions(), Reply::json(200, crd.clone())]);
        let found = fake.cluster().definition(&kind("g/v1", "Widget")).await;
        assert_eq!(found, Ok(Some(crd)));
        assert_eq!(
            fake.paths()[2],
            "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.g"
        );
        let fake = Fake::answering([group("widgets"), definitions(), not_found("widgets.g")]);
        assert_eq!(fake.cluster().definition(&kind("g/v1", "Widget")).await, Ok(None));
        let fake = Fake::answering([not_served()]);
        assert_eq!(fake.cluster().definition(&kind("g/v1", "Widget")).await, Ok(None));
        let fake = Fake::answering([group("widgets")]);
        assert_eq!(fake.cluster().definition(&kind("v1", "Widget")).await, Ok(None));
    }

    #[tokio::test]
    async fn failing_to_look_is_not_the_absence_of_a_kind() {
        let fake = Fake::answering([Reply::json(503, json!({})), Reply::Refused]);
        let cluster = fake.cluster();
        for _ in 0..2 {
            let failure = cluster.resource(&kind("g/v1", "Widget")).await.expect_err("down");
            assert_eq!(failure.code, Code::Unavailable);
        }
    }
}
