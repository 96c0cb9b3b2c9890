//! Sends requests of every kind with odd values in every place. Each is answered, none with an internal
//! error, and the next requests are served as before.

use crate::thing_fixture::{define, empty, raw, thing_crd};
use kube::Client;
use serde_json::{Value, json};

const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];
const JSON_PATCH: [(&str, &str); 1] = [("content-type", "application/json-patch+json")];

fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e308),
        json!(""),
        json!("x"),
        json!("../%2f\u{0}\u{202e}"),
        json!([]),
        json!([null, 7, [], {}]),
        json!({}),
        json!({"a": {"b": 1}, "": null}),
    ]
}

/// One object of each kind, and its collection.
fn objects() -> Vec<(&'static str, Value)> {
    let of = |version: &str, kind: &str, rest: Value| {
        let mut object = json!({
            "apiVersion": version, "kind": kind,
            "metadata": {
                "name": "x", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.test/f"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}],
            },
        });
        json_patch::merge(&mut object, &rest);
        object
    };
    let status = json!({"status": {"phase": "Active", "conditions": [{"type": "Ready", "status": "True"}]}});
    let with_status = |mut object: Value| {
        json_patch::merge(&mut object, &status);
        object
    };
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]});
    let pod = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i"}]}});
    let volume = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    let claim =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let attachment =
        json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    let event = json!({
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R", "message": "M", "count": 1,
    });
    let lease = json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let mut crd = thing_crd();
    crd["metadata"] = json!({"name": "others.example.test"});
    crd["spec"]["names"] = json!({"plural": "others", "kind": "Other", "shortNames": ["o"]});
    let thing = json!({"spec": {"size": 1, "disks": [{"name": "a"}], "labels": {"a": "b"}, "port": 1, "raw": {"a": 1}}});
    vec![
        (
            "/api/v1/namespaces",
            with_status(of("v1", "Namespace", json!({}))),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            of(
                "v1",
                "Secret",
                json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
            ),
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            of("v1", "ConfigMap", json!({"data": {"a": "b"}})),
        ),
        (
            "/api/v1/nodes",
            with_status(of("v1", "Node", json!({"spec": {"taints": [{"key": "k"}]}}))),
        ),
        (
            "/api/v1/namespaces/default/pods",
            with_status(of("v1", "Pod", pod)),
        ),
        ("/api/v1/namespaces/default/events", of("v1", "Event", event)),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            of(
                "events.k8s.io/v1",
                "Event",
                json!({"note": "n", "regarding": {"kind": "Pod"}}),
            ),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            of("coordination.k8s.io/v1", "Lease", lease),
        ),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            with_status(of(
                "policy/v1",
                "PodDisruptionBudget",
                json!({"spec": {"minAvailable": "50%", "selector": selector}}),
            )),
        ),
        (
            "/api/v1/persistentvolumes",
            with_status(of("v1", "PersistentVolume", volume)),
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            with_status(of("v1", "PersistentVolumeClaim", claim)),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            of("storage.k8s.io/v1", "VolumeAttachment", attachment),
        ),
        (
            "/apis/example.test/v1/namespaces/default/things",
            with_status(of("example.test/v1", "Thing", thing)),
        ),
    ]
}

/// The pointer of every value in a value, its own first.
fn places(value: &Value, at: &str, places: &mut Vec<String>) {
    places.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                self::places(item, &format!("{at}/{index}"), places);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                self::places(
                    field,
                    &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                    places,
                );
            }
        }
        _ => {}
    }
}

/// For each place of the object: copies of the object, each with another odd value there.
fn odd_ones(object: &Value) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    places(object, "", &mut all);
    let with = |at: &str, value: Value| {
        let mut changed = object.clone();
        *changed.pointer_mut(at).unwrap() = value;
        changed
    };
    let odd = all
        .iter()
        .map(|at| odd_values().into_iter().map(|value| with(at, value)).collect());
    odd.collect()
}

async fn answered(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> u16 {
    let (code, answer) = raw(client, method, path, headers, &body.to_string()).await;
    assert_ne!(code, 500, "{method} {path} {body}: {answer}");
    code
}

/// Removes an object, whatever keeps it.
async fn remove(client: &Client, at: &str) {
    let free = json!({"metadata": {"finalizers": null}});
    answered(client, "DELETE", at, &[], &json!({"gracePeriodSeconds": 0})).await;
    answered(client, "PATCH", at, &MERGE, &free).await;
    answered(client, "DELETE", at, &[], &json!({"gracePeriodSeconds": 0})).await;
}

#[tokio::test]
async fn no_body_is_answered_by_a_bug() {
    for (collection, object) in objects() {
        let client = empty();
        define(&client, thing_crd()).await;
        let name = object["metadata"]["name"].as_str().unwrap();
        let at = format!("{collection}/{name}");
        assert_eq!(
            answered(&client, "POST", collection, &[], &object).await,
            201,
            "{collection}"
        );
        for place in odd_ones(&object) {
            for odd in place {
                for (method, path, headers) in [
                    ("PATCH", at.clone(), &MERGE[..]),
                    ("PATCH", format!("{at}/status"), &MERGE),
                    ("PUT", at.clone(), &[]),
                    ("PUT", format!("{at}/status"), &[]),
                    ("PATCH", at.clone(), &JSON_PATCH),
                    ("POST", format!("{at}/eviction"), &[]),
                    ("DELETE", at.clone(), &[]),
                ] {
                    let body = if headers == JSON_PATCH {
                        json!([{"op": "replace", "path": "", "value": odd}])
                    } else {
                        odd.clone()
                    };
                    answered(&client, method, &path, headers, &body).await;
                }
                remove(&client, &at).await;
                answered(&client, "POST", collection, &[], &odd).await;
                remove(&client, &at).await;
                answered(&client, "POST", collection, &[], &object).await;
            }
            for accept in ["application/json", "application/json;as=Table;g=meta.k8s.io;v=v1"] {
                let (code, list) = raw(&client, "GET", collection, &[("accept", accept)], "").await;
                assert_eq!(code, 200, "{list}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_query_and_no_option_is_answered_by_a_bug() {
    let client = empty();
    define(&client, thing_crd()).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
    let at = format!("{pods}/p");
    let odd = [
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775808",
        "x",
        "%00",
        "%ff",
        "true",
        "eyJyZXZpc2lvbiI6MTg0NDY3NDQwNzM3MDk1NTE2MTUsIm5hbWVzcGFjZSI6IiIsIm5hbWUiOiIifQ",
        "a%20in%20(((",
        "!!",
        "a%3D%3Db%2C",
        ")",
    ];
    let parameters = [
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "gracePeriodSeconds",
        "propagationPolicy",
        "orphanDependents",
        "dryRun",
        "fieldValidation",
        "fieldManager",
        "includeObject",
        "sendInitialEvents",
    ];
    for parameter in parameters {
        for value in odd {
            answered(&client, "POST", pods, &[], &pod).await;
            let query = format!("?{parameter}={value}");
            for (method, path) in [
                ("GET", pods),
                ("GET", &at),
                ("DELETE", &at),
                ("DELETE", pods),
                ("POST", pods),
            ] {
                let body = if method == "POST" { pod.clone() } else { json!({}) };
                answered(&client, method, &format!("{path}{query}"), &[], &body).await;
            }
            answered(
                &client,
                "GET",
                &format!("{pods}?watch=true&timeoutSeconds=1&{parameter}={value}&resourceVersion=1"),
                &[],
                &json!({}),
            )
            .await;
        }
    }
    for value in odd {
        let request = http::Request::get(format!("{pods}?watch=true&timeoutSeconds={value}"));
        let response = client
            .send(request.body(kube::client::Body::empty()).unwrap())
            .await
            .unwrap();
        assert!(response.status().as_u16() < 500, "{value}");
    }
}

#[tokio::test]
async fn what_nests_too_deep_is_refused_and_the_rest_is_listed() {
    let client = empty();
    define(&client, thing_crd()).await;
    let things = "/apis/example.test/v1/namespaces/default/things";
    let thing = |name: &str, raw: Value| json!({"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"size": 1, "raw": raw}});
    let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({"a": inner}));
    assert_eq!(
        answered(&client, "POST", things, &[], &thing("fine", nested(90))).await,
        201
    );
    for depth in [100, 110, 120] {
        assert_eq!(
            answered(&client, "POST", things, &[], &thing("deep", nested(depth))).await,
            400
        );
        let patch = json!({"spec": {"raw": nested(depth)}});
        assert_eq!(
            answered(&client, "PATCH", &format!("{things}/fine"), &MERGE, &patch).await,
            400
        );
    }
    // A few operations put an object into itself again and again.
    let deeper = [
        json!({"op": "add", "path": "/spec/raw/b", "value": {}}),
        json!({"op": "move", "from": "/spec/raw/a", "path": "/spec/raw/b/a"}),
        json!({"op": "move", "from": "/spec/raw/b", "path": "/spec/raw/a"}),
    ];
    let moves: Vec<&Value> = std::iter::repeat_n(&deeper, 3_000).flatten().collect();
    let at = format!("{things}/fine");
    assert_eq!(
        answered(&client, "PATCH", &at, &JSON_PATCH, &json!(moves)).await,
        400
    );
    let copies = vec![json!({"op": "copy", "from": "/spec/raw", "path": "/spec/raw/b"}); 30];
    let code = answered(&client, "PATCH", &at, &JSON_PATCH, &json!(copies)).await;
    assert!([400, 413].contains(&code), "{code}");
    let (code, list) = raw(&client, "GET", things, &[], "").await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(1)));
}
