//! A server in memory, a client to it, and a CRD to work with.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, PostParams, WatchEvent, WatchParams},
    discovery::ApiResource,
};
use polity_standalone::{Api as Server, Clock, Store};
use serde_json::{Value, json};

/// A clock that a test moves: seconds since the epoch.
#[derive(Clone, Default)]
pub struct Seconds(Arc<AtomicU64>);

impl Seconds {
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub fn clock(&self) -> Clock {
        let seconds = self.0.clone();
        Arc::new(move || SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::SeqCst)))
    }
}

/// A client to a store.
pub fn client(store: Arc<Store>) -> Client {
    Client::new(Server::new(store), "default")
}

/// A client to an empty store in memory, whose clock stands at the epoch.
pub fn empty() -> Client {
    client(Arc::new(Store::in_memory(Seconds::default().clock(), [7; 16])))
}

/// The same, serving things.
pub async fn with_things() -> Client {
    let client = empty();
    define(&client, thing_crd()).await;
    client
}

pub async fn define(client: &Client, crd: Value) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = serde_json::from_value(crd).unwrap();
    crds.create(&PostParams::default(), &crd).await.unwrap();
}

pub fn thing_resource() -> ApiResource {
    ApiResource {
        group: "example.test".to_owned(),
        version: "v1".to_owned(),
        api_version: "example.test/v1".to_owned(),
        kind: "Thing".to_owned(),
        plural: "things".to_owned(),
    }
}

pub fn things(client: &Client) -> Api<DynamicObject> {
    let resource = thing_resource();
    Api::namespaced_with(client.clone(), "default", &resource)
}

pub fn thing(name: &str, rest: Value) -> DynamicObject {
    let mut object = json!({
        "apiVersion": "example.test/v1",
        "kind": "Thing",
        "metadata": { "name": name },
        "spec": { "size": 1 },
    });
    json_patch::merge(&mut object, &rest);
    serde_json::from_value(object).unwrap()
}

pub async fn create(api: &Api<DynamicObject>, name: &str, rest: Value) -> DynamicObject {
    api.create(&PostParams::default(), &thing(name, rest))
        .await
        .unwrap()
}

/// A kind with a status subresource, defaults, limits and printer columns.
pub fn thing_crd() -> Value {
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": { "type": "integer", "minimum": 1, "maximum": 9 },
                    "color": { "type": "string", "enum": ["red", "green"], "default": "red" },
                    "disks": {
                        "type": "array",
                        "maxItems": 2,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 8 },
                                "gib": { "type": "integer", "default": 10 },
                            },
                        },
                    },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                    "port": {
                        "x-kubernetes-int-or-string": true,
                        "anyOf": [{ "type": "integer" }, { "type": "string" }],
                    },
                    "raw": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "note": { "type": "string", "nullable": true },
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "phase": { "type": "string" },
                    "conditions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": { "type": { "type": "string" }, "status": { "type": "string" } },
                        },
                    },
                },
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.test" },
        "spec": {
            "group": "example.test",
            "scope": "Namespaced",
            "names": { "plural": "things", "kind": "Thing", "shortNames": ["th"] },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
                "additionalPrinterColumns": [
                    { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                    {
                        "name": "Ready",
                        "type": "string",
                        "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status",
                    },
                    { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                ],
            }],
        },
    })
}

/// A watch whose events can be taken one by one. Every test in here waits only for events that were caused
/// before: a missing one fails the test at the end of the stream, or hangs it, and never passes it.
pub struct Events(BoxStream<'static, Result<WatchEvent<DynamicObject>, kube::Error>>);

impl Events {
    pub async fn of(api: &Api<DynamicObject>, params: &WatchParams, version: &str) -> Self {
        Self(api.watch(params, version).await.unwrap().boxed())
    }

    /// The next event, as `KIND name`.
    pub async fn next(&mut self) -> String {
        match self.raw().await {
            WatchEvent::Added(object) => format!("ADDED {}", object.name_any()),
            WatchEvent::Modified(object) => format!("MODIFIED {}", object.name_any()),
            WatchEvent::Deleted(object) => format!("DELETED {}", object.name_any()),
            WatchEvent::Bookmark(bookmark) => {
                let end = bookmark
                    .metadata
                    .annotations
                    .contains_key("k8s.io/initial-events-end");
                format!("BOOKMARK{}", if end { " end" } else { "" })
            }
            WatchEvent::Error(status) => format!("ERROR {}", status.code),
        }
    }

    pub async fn raw(&mut self) -> WatchEvent<DynamicObject> {
        self.0.next().await.unwrap().unwrap()
    }

    pub async fn ended(&mut self) -> bool {
        self.0.next().await.is_none()
    }
}

/// The code and message of a refused request.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("not refused by the server: {other:?}"),
    }
}

/// A request without kube's help: the answer's code and JSON.
pub async fn raw(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(kube::client::Body::from(body.as_bytes().to_vec()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (
        code,
        serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))),
    )
}
