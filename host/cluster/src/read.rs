//! Reads that go through to the API server.

use polity_core::contract::{Answer, Code, Failure, ListQuery, ObjectRef, Question};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Cluster;
use crate::error::Verb;
use crate::path;
use crate::write::named;

/// Objects in one page of a list.
pub(crate) const PAGE: &str = "500";

impl Cluster {
    /// Answers a question of the cluster: the object, an array of objects, or what may be known of a Secret.
    pub async fn read(&self, question: &Question) -> Answer {
        match question {
            Question::Object(query) => self.get(&query.object).await,
            Question::Objects(query) => self.list(query).await,
            Question::Secret(secret) => self.secret(secret).await,
            Question::Cloud(_) | Question::Permit(_) | Question::Credential(_) => Err(Failure::new(
                Code::Unimplemented,
                "not a question to the API server",
            )),
        }
    }

    pub(crate) async fn get(&self, object: &ObjectRef) -> Answer {
        let resource = self.resource(&object.kind).await?;
        let path = resource.object(object.namespace.as_deref(), &object.name, None);
        self.call(Verb::Read, &named(object), "GET", &path, None).await
    }

    async fn list(&self, query: &ListQuery) -> Answer {
        let resource = self.resource(&query.kind).await?;
        let what = format!("list of {}", query.kind.kind);
        let collection = resource.collection(query.namespace.as_deref());
        let mut pairs = vec![("limit", PAGE.to_owned())];
        pairs.extend(query.label_selector.clone().map(|s| ("labelSelector", s)));
        pairs.extend(query.field_selector.clone().map(|s| ("fieldSelector", s)));
        let limit = if query.limit == 0 {
            usize::MAX
        } else {
            query.limit as usize
        };
        let mut objects = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (*k, v.as_str())).collect();
            pairs.extend(next.as_deref().map(|token| ("continue", token)));
            let path = collection.clone() + &path::query(&pairs);
            let mut page = self.call(Verb::Read, &what, "GET", &path, None).await?;
            objects.extend(items(&mut page, &query.kind));
            if objects.len() > limit {
                let message = format!("{what}: more than the {limit} that were asked for");
                return Err(Failure::new(Code::ResourceExhausted, message));
            }
            next = page["metadata"]["continue"]
                .as_str()
                .filter(|t| !t.is_empty())
                .map(str::to_owned);
            if next.is_none() {
                break;
            }
        }
        let place = |o: &Value| {
            let text = |field: &str| o["metadata"][field].as_str().unwrap_or_default().to_owned();
            (text("namespace"), text("name"))
        };
        objects.sort_by_key(place);
        Ok(Value::Array(objects))
    }

    async fn secret(&self, secret: &ObjectRef) -> Answer {
        let kind = polity_core::contract::Kind {
            api_version: "v1".into(),
            kind: "Secret".into(),
        };
        let found = match self
            .get(&ObjectRef {
                kind,
                ..secret.clone()
            })
            .await
        {
            Err(failure) if failure.code == Code::NotFound => {
                return Ok(json!({"exists": false, "keys": [], "digest": null}));
            }
            other => other?,
        };
        let key = self.installation_key().await?;
        let mut keys: Vec<&String> = found["data"]
            .as_object()
            .into_iter()
            .flat_map(|data| data.keys())
            .collect();
        keys.sort();
        let mut digest = Sha256::new_with_prefix(key.as_bytes());
        for name in &keys {
            let value = found["data"][name.as_str()].as_str().unwrap_or_default();
            // With their lengths, so that two Secrets never run into the same bytes.
            for part in [name.as_bytes(), value.as_bytes()] {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        let digest: String = digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(json!({"exists": true, "keys": keys, "digest": digest}))
    }

    /// The uid of `kube-system`: stays the same for as long as a cluster lives, and differs between clusters.
    async fn installation_key(&self) -> Result<&str, Failure> {
        let key = self.installation.get_or_try_init(|| async {
            let kind = polity_core::contract::Kind {
                api_version: "v1".into(),
                kind: "Namespace".into(),
            };
            let system = self
                .get(&ObjectRef {
                    kind,
                    namespace: None,
                    name: "kube-system".into(),
                })
                .await?;
            Ok::<_, Failure>(system["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
        });
        Ok(key.await?)
    }
}

/// The objects of a list, with the kind that lists leave out of their items.
pub(crate) fn items(list: &mut Value, kind: &polity_core::contract::Kind) -> Vec<Value> {
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
        return Vec::new();
    };
    items
        .into_iter()
        .map(|mut item| {
            item["apiVersion"] = json!(kind.api_version);
            item["kind"] = json!(kind.kind);
            item
        })
        .collect()
}
