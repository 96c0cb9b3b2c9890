//! Evictions, and the budgets that they ask.

use std::sync::Arc;

use crate::thing_fixture::{Seconds, client, define, empty, raw};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::EvictParams};
use polity_standalone::Store;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];

async fn post(client: &Client, path: &str, body: Value) -> Value {
    let (code, answer) = raw(client, "POST", path, &[], &body.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

async fn merge(client: &Client, path: &str, body: Value) -> Value {
    let (code, answer) = raw(client, "PATCH", path, &MERGE, &body.to_string()).await;
    assert_eq!(code, 200, "{answer}");
    answer
}

async fn get(client: &Client, path: &str) -> Value {
    raw(client, "GET", path, &[], "").await.1
}

/// A ready pod on a node, labelled `app=a`, unless `rest` says otherwise.
async fn pod(client: &Client, name: &str, rest: Value) {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": "a" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
    });
    json_patch::merge(&mut pod, &rest);
    post(client, PODS, pod).await;
    set_ready(client, name, true).await;
}

async fn set_ready(client: &Client, name: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] });
    merge(
        client,
        &format!("{PODS}/{name}/status"),
        json!({ "status": status }),
    )
    .await;
}

async fn budget(client: &Client, name: &str, mut spec: Value) {
    if spec.get("selector").is_none() {
        spec["selector"] = json!({ "matchLabels": { "app": "a" } });
    }
    post(
        client,
        BUDGETS,
        json!({ "metadata": { "name": name }, "spec": spec }),
    )
    .await;
}

async fn evict(client: &Client, name: &str, options: Value) -> (u16, Value) {
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name }, "deleteOptions": options,
    });
    raw(
        client,
        "POST",
        &format!("{PODS}/{name}/eviction"),
        &[],
        &body.to_string(),
    )
    .await
}

/// Removes a pod, as its kubelet does in the end.
async fn end(client: &Client, name: &str) {
    let now = json!({ "gracePeriodSeconds": 0 }).to_string();
    raw(client, "DELETE", &format!("{PODS}/{name}"), &[], &now).await;
}

/// expected, desired, healthy, allowed
async fn counts(client: &Client, name: &str) -> [i64; 4] {
    let budget = get(client, &format!("{BUDGETS}/{name}")).await;
    [
        "expectedPods",
        "desiredHealthy",
        "currentHealthy",
        "disruptionsAllowed",
    ]
    .map(|field| budget["status"][field].as_i64().unwrap())
}

#[tokio::test]
async fn pods_are_evicted_until_the_budget_is_spent() {
    let client = empty();
    for name in ["p", "q", "r"] {
        pod(&client, name, json!({})).await;
    }
    budget(&client, "b", json!({ "minAvailable": 2 })).await;
    assert_eq!(counts(&client, "b").await, [3, 2, 3, 1]);

    let (code, answer) = evict(&client, "p", Value::Null).await;
    let success =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    assert_eq!((code, answer), (201, success));
    let ending = get(&client, &format!("{PODS}/p")).await;
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    let target = &ending["status"]["conditions"][1];
    let expected = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": "1970-01-01T00:00:00Z",
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    assert_eq!(*target, expected);
    assert_eq!(counts(&client, "b").await, [3, 2, 2, 0]);

    let (code, answer) = evict(&client, "q", Value::Null).await;
    let refused = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests",
        "details": { "causes": [{
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 2 healthy pods and has 2 currently",
        }] },
    });
    assert_eq!((code, answer), (429, refused));
    assert_eq!(
        evict(&client, "p", Value::Null).await.0,
        201,
        "one that ends already costs nothing"
    );
    end(&client, "p").await;
    assert_eq!(counts(&client, "b").await, [2, 2, 2, 0]);
    pod(&client, "s", json!({})).await;
    assert_eq!(
        evict(&client, "q", Value::Null).await.0,
        201,
        "one has taken its place"
    );
}

#[tokio::test(start_paused = true)]
async fn a_charged_budget_is_seen_before_its_pod_goes() {
    let client = empty();
    pod(&client, "p", json!({})).await;
    budget(&client, "b", json!({ "minAvailable": 0 })).await;
    let before = get(&client, BUDGETS).await;
    let version = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    assert_eq!(evict(&client, "p", Value::Null).await.0, 201);
    let path = format!("{BUDGETS}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let (_, events) = raw(&client, "GET", &path, &[], "").await;
    let events = events.as_str().unwrap_or_default();
    let statuses: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["object"]["status"].clone())
        .collect();
    assert_eq!(statuses.len(), 2, "{events}");
    assert_eq!(
        statuses[0]["disruptedPods"],
        json!({ "p": "1970-01-01T00:00:00Z" })
    );
    assert_eq!(statuses[0]["disruptionsAllowed"], 0);
    assert_eq!(statuses[0]["conditions"][0]["reason"], "InsufficientPods");
    assert_eq!(
        statuses[1].get("disruptedPods"),
        None,
        "it is being deleted: nobody has to remember it"
    );
}

#[tokio::test]
async fn a_pod_that_does_not_serve_is_evicted_whatever_its_budget() {
    for (phase, ready) in [("Pending", false), ("Succeeded", false), ("Failed", true)] {
        let client = empty();
        pod(&client, "p", json!({})).await;
        budget(&client, "b", json!({ "minAvailable": "100%" })).await;
        set_ready(&client, "p", ready).await;
        let status = json!({ "status": { "phase": phase } });
        merge(&client, &format!("{PODS}/p/status"), status).await;
        assert_eq!(evict(&client, "p", Value::Null).await.0, 201, "{phase}");
    }
}

#[tokio::test]
async fn a_pod_that_is_not_ready_is_evicted_as_its_policy_says() {
    let client = empty();
    for name in ["p", "q"] {
        pod(&client, name, json!({})).await;
    }
    set_ready(&client, "p", false).await;
    budget(&client, "b", json!({ "minAvailable": 2 })).await;
    assert_eq!(evict(&client, "p", Value::Null).await.0, 429);
    let spec = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    merge(&client, &format!("{BUDGETS}/b"), spec).await;
    assert_eq!(evict(&client, "q", Value::Null).await.0, 429);
    assert_eq!(evict(&client, "p", Value::Null).await.0, 201);

    let client = empty();
    for name in ["p", "q"] {
        pod(&client, name, json!({})).await;
    }
    set_ready(&client, "p", false).await;
    budget(&client, "b", json!({ "minAvailable": 1 })).await;
    assert_eq!(evict(&client, "q", Value::Null).await.0, 429);
    assert_eq!(
        evict(&client, "p", Value::Null).await.0,
        201,
        "the budget has what it wants without it"
    );
}

#[tokio::test]
async fn two_budgets_for_one_pod_are_an_error() {
    let client = empty();
    pod(&client, "p", json!({})).await;
    budget(&client, "b", json!({ "minAvailable": 0 })).await;
    budget(&client, "c", json!({ "minAvailable": 0, "selector": {} })).await;
    let (code, answer) = evict(&client, "p", Value::Null).await;
    let refused = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
        "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    });
    assert_eq!((code, answer), (500, refused));
    budget(&client, "none", json!({ "minAvailable": 0, "selector": null })).await;
    raw(&client, "DELETE", &format!("{BUDGETS}/c"), &[], "").await;
    assert_eq!(
        evict(&client, "p", Value::Null).await.0,
        201,
        "a budget without a selector covers nothing"
    );
}

#[tokio::test]
async fn an_eviction_keeps_to_its_delete_options() {
    let client = empty();
    pod(&client, "p", json!({})).await;
    budget(&client, "b", json!({ "minAvailable": 0 })).await;
    let before = get(&client, &format!("{BUDGETS}/b")).await;
    let uid = get(&client, &format!("{PODS}/p")).await["metadata"]["uid"].clone();
    for (preconditions, message) in [
        (
            json!({ "uid": "other" }),
            format!(
                "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (other) does not match the \
                 UID in record ({}). The object might have been deleted and then recreated",
                uid.as_str().unwrap()
            ),
        ),
        (
            json!({ "uid": uid, "resourceVersion": "1" }),
            "the ResourceVersion in the precondition (1) does not match".to_owned(),
        ),
    ] {
        let (code, answer) = evict(&client, "p", json!({ "preconditions": preconditions })).await;
        assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")));
        assert!(answer["message"].as_str().unwrap().contains(&message), "{answer}");
    }
    let after = get(&client, &format!("{BUDGETS}/b")).await;
    assert_eq!(before, after, "what does not happen costs nothing");
    let dry = evict(&client, "p", json!({ "dryRun": ["All"] })).await;
    assert_eq!(dry.0, 501);

    let options = json!({ "gracePeriodSeconds": 7, "preconditions": { "uid": uid } });
    assert_eq!(evict(&client, "p", options).await.0, 201);
    let ending = get(&client, &format!("{PODS}/p")).await;
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 7);
    assert_eq!(
        evict(&client, "p", json!({ "gracePeriodSeconds": 0 })).await.0,
        201
    );
    assert_eq!(raw(&client, "GET", &format!("{PODS}/p"), &[], "").await.0, 404);
    assert_eq!(evict(&client, "p", Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_body_that_is_no_eviction_of_this_pod_is_refused() {
    let client = empty();
    pod(&client, "p", json!({})).await;
    let path = format!("{PODS}/p/eviction");
    for body in [
        "",
        "[]",
        r#"{"metadata": {}}"#,
        r#"{"metadata": {"name": "q"}}"#,
        r#"{"metadata": {"name": "p", "namespace": "other"}}"#,
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}"#,
        r#"{"apiVersion": "policy/v2", "kind": "Eviction", "metadata": {"name": "p"}}"#,
    ] {
        let (code, answer) = raw(&client, "POST", &path, &[], body).await;
        assert_eq!(code, 400, "{body} {answer}");
    }
    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        assert_eq!(raw(&client, method, &path, &MERGE, "{}").await.0, 405, "{method}");
    }
    let things = "/api/v1/namespaces/default/secrets/s/eviction";
    assert_eq!(raw(&client, "POST", things, &[], "{}").await.0, 404);
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.evict("p", &EvictParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_budget_follows_its_pods_and_its_spec() {
    let client = empty();
    budget(&client, "b", json!({ "maxUnavailable": 1 })).await;
    let fresh = get(&client, &format!("{BUDGETS}/b")).await;
    assert_eq!(counts(&client, "b").await, [0, 0, 0, 0]);
    assert_eq!(fresh["status"]["observedGeneration"], 1);
    let pending = json!({ "metadata": { "name": "n", "labels": { "app": "a" } }, "spec": {} });
    post(&client, PODS, pending).await;
    assert_eq!(
        counts(&client, "b").await,
        [1, 0, 0, 0],
        "one that is new is expected"
    );
    end(&client, "n").await;
    for name in ["p", "q"] {
        pod(&client, name, json!({})).await;
    }
    assert_eq!(counts(&client, "b").await, [2, 1, 2, 1]);
    set_ready(&client, "p", false).await;
    assert_eq!(counts(&client, "b").await, [2, 1, 1, 0]);
    let elsewhere = json!({ "metadata": { "labels": { "app": "other" } } });
    merge(&client, &format!("{PODS}/p"), elsewhere).await;
    assert_eq!(counts(&client, "b").await, [1, 0, 1, 1]);

    let version = |budget: &Value| budget["metadata"]["resourceVersion"].clone();
    let before = get(&client, &format!("{BUDGETS}/b")).await;
    merge(
        &client,
        &format!("{PODS}/q/status"),
        json!({ "status": { "podIP": "10.0.0.1" } }),
    )
    .await;
    let after = get(&client, &format!("{BUDGETS}/b")).await;
    assert_eq!(
        version(&before),
        version(&after),
        "nothing that counts has changed"
    );

    merge(
        &client,
        &format!("{BUDGETS}/b"),
        json!({ "spec": { "maxUnavailable": "0%" } }),
    )
    .await;
    let stricter = get(&client, &format!("{BUDGETS}/b")).await;
    assert_eq!(counts(&client, "b").await, [1, 1, 1, 0]);
    assert_eq!(
        (
            &stricter["metadata"]["generation"],
            &stricter["status"]["observedGeneration"]
        ),
        (&json!(2), &json!(2))
    );
    let wrong = json!({ "status": { "disruptionsAllowed": 5 } });
    merge(&client, &format!("{BUDGETS}/b/status"), wrong).await;
    assert_eq!(
        counts(&client, "b").await,
        [1, 1, 1, 0],
        "what somebody else writes does not last"
    );
    end(&client, "q").await;
    assert_eq!(counts(&client, "b").await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn controllers_that_are_here_say_how_many_pods_they_want() {
    let client = empty();
    let mut crd = crate::thing_fixture::thing_crd();
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["replicas"] = json!({ "type": "integer" });
    define(&client, crd).await;
    let things = "/apis/example.test/v1/namespaces/default/things";
    let thing = json!({
        "apiVersion": "example.test/v1", "kind": "Thing",
        "metadata": { "name": "set" }, "spec": { "size": 1, "replicas": 3 },
    });
    let set = post(&client, things, thing).await;
    let owner = |uid: &Value, kind: &str| {
        json!({ "metadata": { "ownerReferences": [{
            "apiVersion": "example.test/v1", "kind": kind, "name": "set", "uid": uid, "controller": true,
        }] } })
    };
    let uid = &set["metadata"]["uid"];
    budget(&client, "b", json!({ "maxUnavailable": 1 })).await;
    for name in ["p", "q"] {
        pod(&client, name, owner(uid, "Thing")).await;
    }
    assert_eq!(counts(&client, "b").await, [3, 2, 2, 0], "one is missing already");
    merge(
        &client,
        &format!("{things}/set"),
        json!({ "spec": { "replicas": 2 } }),
    )
    .await;
    assert_eq!(counts(&client, "b").await, [2, 1, 2, 1]);
    // The pods of a controller that is not stored here are counted.
    pod(&client, "r", owner(&json!("unknown"), "ReplicaSet")).await;
    pod(&client, "s", json!({})).await;
    assert_eq!(counts(&client, "b").await, [4, 3, 4, 1]);
}

#[tokio::test]
async fn a_pod_that_was_not_deleted_after_all_counts_again_in_time() {
    let seconds = Seconds::default();
    let client = client(Arc::new(Store::in_memory(seconds.clock(), [7; 16])));
    for name in ["p", "q"] {
        pod(&client, name, json!({})).await;
    }
    budget(&client, "b", json!({ "minAvailable": 1 })).await;
    let evicted = json!({ "status": { "disruptedPods": { "p": "1970-01-01T00:00:00Z" } } });
    merge(&client, &format!("{BUDGETS}/b/status"), evicted).await;
    assert_eq!(counts(&client, "b").await, [2, 1, 1, 0]);
    seconds.advance(119);
    assert_eq!(evict(&client, "q", Value::Null).await.0, 429);
    seconds.advance(2);
    let budget = get(&client, &format!("{BUDGETS}/b")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1, "a read is enough");
    assert_eq!(budget["status"].get("disruptedPods"), None);
    assert_eq!(evict(&client, "q", Value::Null).await.0, 201);
}

#[tokio::test]
async fn a_budget_that_makes_no_sense_is_refused() {
    let client = empty();
    for spec in [
        json!({ "minAvailable": 1, "maxUnavailable": 1 }),
        json!({ "minAvailable": "x" }),
        json!({ "maxUnavailable": "101%" }),
        json!({ "unhealthyPodEvictionPolicy": "Never" }),
        json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } }),
    ] {
        let body = json!({ "metadata": { "name": "b" }, "spec": spec });
        let (code, answer) = raw(&client, "POST", BUDGETS, &[], &body.to_string()).await;
        assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{spec}");
    }
    budget(&client, "b", json!({ "minAvailable": 1 })).await;
    let blind = json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 2 } }).to_string();
    let path = format!("{BUDGETS}/b");
    assert_eq!(raw(&client, "PUT", &path, &[], &blind).await.0, 422);
    let negative = json!({ "status": { "disruptionsAllowed": -1 } }).to_string();
    let path = format!("{BUDGETS}/b/status");
    assert_eq!(raw(&client, "PATCH", &path, &MERGE, &negative).await.0, 422);
}

#[tokio::test]
async fn budgets_and_evictions_are_shown_as_by_a_real_api_server() {
    let client = empty();
    budget(&client, "b", json!({ "minAvailable": "50%" })).await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (_, table) = raw(&client, "GET", BUDGETS, &accept, "").await;
    let columns = table["columnDefinitions"].as_array().unwrap();
    let names: Vec<&str> = columns.iter().map(|c| c["name"].as_str().unwrap()).collect();
    let expected = [
        "Name",
        "Min Available",
        "Max Unavailable",
        "Allowed Disruptions",
        "Age",
    ];
    assert_eq!(names, expected);
    assert_eq!(table["rows"][0]["cells"], json!(["b", "50%", "N/A", 0, "0s"]));

    let core = get(&client, "/api/v1").await;
    let found = core["resources"].as_array().unwrap();
    let eviction = found.iter().find(|resource| resource["name"] == "pods/eviction");
    let expected = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true,
        "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"],
    });
    assert_eq!(eviction, Some(&expected));
    let openapi = get(&client, "/openapi/v3/apis/policy/v1").await;
    let path = "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}/status";
    assert!(openapi["paths"][path].is_object());
    let openapi = get(&client, "/openapi/v3/api/v1").await;
    assert!(openapi["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"].is_object());
}
