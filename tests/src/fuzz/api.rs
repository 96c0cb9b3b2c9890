//! Fuzzes the embedded API with requests that no client would send, one after another.
//!
//! Each is answered with an object or a valid `Status`, none with an internal error, and every stored object
//! can be listed and read.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use polity_standalone::{Api, Store};
use serde_json::{Value, json};
use tower::Service as _;

use super::{Choices, weird};

/// The most requests of one input.
const MOST: usize = 12;
/// The most frames of a watch that are read.
const FRAMES: usize = 64;

/// Where things stand.
const LISTS: [&str; 14] = [
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/events",
    "/api/v1/nodes",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/example.test/v1/namespaces/default/things",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/api/v1/persistentvolumes",
    "/api/v1/pods",
    "/apis/example.test/v1/things",
];

/// Sends the requests of these bytes to a server of their own.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let now: polity_standalone::Clock = Arc::new(|| UNIX_EPOCH + Duration::from_secs(1_767_225_600));
        let mut api = Api::new(Arc::new(Store::in_memory(now, [7; 16])));
        begin(&mut api);
        for _ in 0..MOST {
            if choices.is_empty() {
                break;
            }
            if let Some(request) = any_request(&mut choices) {
                send(&mut api, request);
            }
        }
        everything_is_readable(&mut api);
    });
}

/// Creates a kind and one object of each kind.
fn begin(api: &mut Api) {
    for (list, object) in [
        (LISTS[6], template("CustomResourceDefinition")),
        (LISTS[7], template("Thing")),
        (LISTS[1], template("ConfigMap")),
        (LISTS[2], template("Pod")),
    ] {
        let request = request(Method::POST, list, &[], object.to_string().into());
        let (code, answer) = send(api, request.expect("a request"));
        assert_eq!(code, StatusCode::CREATED, "{answer}");
    }
}

fn request(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).ok()
}

/// A request; `None` if no HTTP server would accept it.
fn any_request(choices: &mut Choices<'_>) -> Option<Request<Full<Bytes>>> {
    let method = match choices.below(12) {
        0..=2 => Method::POST,
        3..=4 => Method::PUT,
        5..=6 => Method::PATCH,
        7..=8 => Method::DELETE,
        9 => choices
            .pick(&[&Method::HEAD, &Method::OPTIONS, &Method::TRACE])
            .clone(),
        _ => Method::GET,
    };
    let target = path(choices) + &query(choices);
    let types = [
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "application/json;charset=utf-8",
        ";",
    ];
    let accepts = [
        "application/json",
        "*/*",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        "text/html;q=0.1,,;as=",
    ];
    let content_type = if method == Method::PATCH && !choices.chance(50) {
        choices.pick(&types[1..3])
    } else {
        types[choices.below(types.len() * 4) % types.len()]
    };
    let headers = [("content-type", content_type), ("accept", choices.pick(&accepts))];
    let body = body(choices, content_type);
    request(method, &target, &headers, body)
}

fn path(choices: &mut Choices<'_>) -> String {
    if choices.chance(24) {
        return format!("/{}", choices.text());
    }
    let mut path = if choices.chance(24) {
        choices.pick(&[
            "/api",
            "/apis",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/apis/example.test/v1",
            "/version",
            "/healthz",
            "/readyz/ping",
            "/apis/example.test",
            "/apis/example.test/v1",
            "/metrics",
            "/",
        ])
    } else {
        choices.pick(&LISTS)
    }
    .to_owned();
    if choices.chance(180) {
        path.push('/');
        path.push_str(choices.pick(&[
            "one",
            "one",
            "one",
            "default",
            "things.example.test",
            "two",
            "%2e%2e",
            "..%2fx",
            "%00",
            "a%2fb",
            "",
            ".",
            "%ff",
            "ONE",
        ]));
    }
    if choices.chance(70) {
        path.push('/');
        path.push_str(choices.pick(&[
            "status",
            "scale",
            "eviction",
            "log",
            "exec",
            "binding",
            "ephemeralcontainers",
            "finalize",
            "token",
            "",
            "status/x",
        ]));
    }
    if choices.chance(12) {
        let at = choices.below(path.len());
        let text = choices.text();
        path.insert_str(at, &text);
    }
    path
}

fn query(choices: &mut Choices<'_>) -> String {
    let mut query = String::new();
    for _ in 0..choices.below(3) {
        query.push(if query.is_empty() { '?' } else { '&' });
        let name = choices.pick(&[
            "watch",
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
            "labelSelector",
            "fieldSelector",
            "timeoutSeconds",
            "fieldManager",
            "force",
            "dryRun",
            "propagationPolicy",
            "gracePeriodSeconds",
            "allowWatchBookmarks",
            "sendInitialEvents",
            "fieldValidation",
            "pretty",
            "orphanDependents",
        ]);
        query.push_str(name);
        query.push('=');
        if choices.chance(24) {
            query.push_str(&choices.text());
        } else {
            query.push_str(choices.pick(&[
                "true",
                "1",
                "0",
                "-1",
                "18446744073709551615",
                "99999999999999999999",
                "",
                "All",
                "a%3Db",
                "a+in+(b,c)",
                "!a",
                "a+notin+(",
                "metadata.name%3Done",
                "spec.nodeName%3D",
                "NotOlderThan",
                "Exact",
                "Strict",
                "Orphan",
                "Foreground",
                "%00",
                "eyJ2IjoxfQ",
                "2",
            ]));
        }
    }
    query
}

fn body(choices: &mut Choices<'_>, content_type: &str) -> Bytes {
    let mut body = match choices.below(12) {
        0 => return Bytes::copy_from_slice(choices.bytes(128)),
        1 => Value::Null,
        2 if content_type == "application/json-patch+json" => weird::value(choices, 3),
        2..=4 if content_type == "application/json-patch+json" => operations(choices),
        3..=5 if content_type.contains("patch") => weird::patch(choices),
        2 => {
            json!({"kind": "DeleteOptions", "preconditions": {"uid": choices.pick(&["x", ""]), "resourceVersion": "1"},
            "propagationPolicy": choices.pick(&["Orphan", "Background", "Foreground", ""]),
            "gracePeriodSeconds": choices.number()})
        }
        3 => json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}),
        _ => {
            let kinds = [
                "Thing",
                "Thing",
                "CustomResourceDefinition",
                "ConfigMap",
                "Pod",
                "Node",
                "Namespace",
                "PodDisruptionBudget",
                "Event",
                "Lease",
                "Secret",
                "VolumeAttachment",
                "Scale",
            ];
            template(choices.pick(&kinds))
        }
    };
    for _ in 0..choices.below(4) {
        weird::mutate(choices, &mut body);
    }
    if choices.chance(40) {
        weird::put(&mut body, "metadata.finalizers", json!(["a.example/b"]));
    }
    weird::text(choices, &body).into()
}

/// A JSON patch.
fn operations(choices: &mut Choices<'_>) -> Value {
    let len = choices.below(4);
    let operation = |choices: &mut Choices<'_>| {
        let paths = [
            "/spec/size",
            "/metadata",
            "/metadata/finalizers/-",
            "/status/conditions/0",
            "",
            "/",
            "/a~1b/0",
            "/spec/disks/18446744073709551615",
            "/metadata/labels",
            "no slash",
        ];
        json!({"op": choices.pick(&["add", "remove", "replace", "move", "copy", "test", "nonsense"]),
            "path": choices.pick(&paths), "from": choices.pick(&paths), "value": weird::value(choices, 2)})
    };
    (0..len).map(|_| operation(choices)).collect()
}

/// A valid object of a kind.
fn template(kind: &str) -> Value {
    let metadata = json!({"name": "one", "namespace": "default"});
    match kind {
        "Thing" => json!({"apiVersion": "example.test/v1", "kind": kind, "metadata": metadata,
            "spec": {"size": 1, "disks": [{"name": "a"}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        "CustomResourceDefinition" => json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind,
        "metadata": {"name": "things.example.test"}, "spec": {"group": "example.test", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList",
            "shortNames": ["th"], "categories": ["all"]},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema()},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size",
                "statusReplicasPath": ".status.replicas"}},
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
            ]}]}}),
        "Namespace" => json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "two"}}),
        "Node" => json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "one"},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        "Pod" => json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "one", "namespace": "default",
            "labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "one"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        "PodDisruptionBudget" => json!({"apiVersion": "policy/v1", "kind": kind, "metadata": metadata,
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "a"}}}}),
        "Event" => {
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "reason": "R", "message": "m",
            "involvedObject": {"kind": "Pod", "name": "one", "namespace": "default"}, "type": "Normal"})
        }
        "Lease" => json!({"apiVersion": "coordination.k8s.io/v1", "kind": kind, "metadata": metadata,
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}}),
        "VolumeAttachment" => {
            json!({"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": "one"},
            "spec": {"attacher": "a", "nodeName": "one", "source": {"persistentVolumeName": "p"}}})
        }
        "Scale" => json!({"apiVersion": "autoscaling/v1", "kind": kind, "metadata": metadata,
            "spec": {"replicas": 2}}),
        "Secret" => json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"a": "YQ=="}}),
        _ => json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"a": "b"}}),
    }
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "disks": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
                "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "gib": {"type": "integer", "default": 10}}}},
            "port": {"x-kubernetes-int-or-string": true},
            "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "conditions": {"type": "array", "items": {"type": "object",
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}},
        }},
    }})
}

/// Sends a request and checks its answer. Returns the code and the JSON; null for a stream or no body.
fn send(api: &mut Api, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
    let line = format!("{} {}", request.method(), request.uri());
    let head = request.method() == Method::HEAD;
    let answered = api.call(request).now_or_never();
    let Ok(response) = answered.unwrap_or_else(|| panic!("{line}: no answer"));
    let code = response.status();
    let is_json = response
        .headers()
        .get("content-type")
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    let (bytes, ended) = read(response.into_body());
    if !ended {
        for event in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value =
                serde_json::from_slice(event).unwrap_or_else(|e| panic!("{line}: an event: {e}"));
            assert!(
                event["type"].is_string() && event["object"].is_object(),
                "{line}: {event}"
            );
        }
        return (code, Value::Null);
    }
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if head {
        return (code, answer);
    }
    assert!(
        !is_json || code.is_redirection() || !answer.is_null() || is_stream(&bytes),
        "{line}: {code}, no JSON"
    );
    if code.is_client_error() || code.is_server_error() {
        let valid =
            answer["kind"] == "Status" && answer["code"] == code.as_u16() && answer["message"].is_string();
        assert!(valid, "{line}: {code} with {answer}");
        // The server refuses what it does not support. For two budgets of one pod, and for the scale of an
        // object without a number, a real API server also answers 500.
        let no_scale = answer["message"]
            .as_str()
            .is_some_and(|message| message.contains("spec replicas field"));
        let says =
            code.as_u16() != 500 || no_scale || answer["reason"].as_str().unwrap_or_default().is_empty();
        assert!(says, "{line}: {answer}");
    }
    (code, answer)
}

/// Whether a body is that of a watch: several documents.
fn is_stream(bytes: &[u8]) -> bool {
    bytes.is_empty()
        || serde_json::Deserializer::from_slice(bytes)
            .into_iter::<Value>()
            .all(|document| document.is_ok())
}

/// The present content of a body, and whether it is complete.
fn read(mut body: polity_standalone::Body) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    for _ in 0..FRAMES {
        match body.frame().now_or_never() {
            None => return (bytes, false),
            Some(None) => return (bytes, true),
            Some(Some(frame)) => {
                let frame = frame.unwrap_or_else(|e| panic!("a body ends with {e}"));
                bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            }
        }
    }
    (bytes, false)
}

/// Every object can be listed, and read by its name.
fn everything_is_readable(api: &mut Api) {
    for list in LISTS {
        let Some(all) = request(Method::GET, list, &[], Bytes::new()) else {
            continue;
        };
        let (code, answer) = send(api, all);
        if code == StatusCode::NOT_FOUND {
            // Somebody deleted the namespace, or the kind.
            continue;
        }
        assert_eq!(code, StatusCode::OK, "{list}: {answer}");
        let items = answer["items"]
            .as_array()
            .unwrap_or_else(|| panic!("{list}: {answer}"));
        if list.contains("/namespaces/") || !list.ends_with("pods") && !list.ends_with("things") {
            for item in items {
                let name = item["metadata"]["name"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{list}: {item}"));
                let Some(one) = request(Method::GET, &format!("{list}/{name}"), &[], Bytes::new()) else {
                    panic!("{list}: the name {name:?} is no path");
                };
                let (code, answer) = send(api, one);
                assert_eq!(
                    (code, &answer["metadata"]["uid"]),
                    (StatusCode::OK, &item["metadata"]["uid"]),
                    "{list}/{name}"
                );
            }
        }
    }
}
