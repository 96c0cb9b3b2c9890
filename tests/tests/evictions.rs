//! The embedded API and a real kube-apiserver give the same answers about evictions, disruption budgets and
//! volume attachments: the same checks on both, to the letter.
//!
//! The SDK's drain asks for each of these evictions, and the SDK's test kit answers as both.
//!
//! Here kube-controller-manager does not count pods for the real API server. If a check needs a budget's
//! status, it writes the one that the embedded API has computed.

use std::sync::Arc;
use std::time::SystemTime;

use kube::client::Body;
use polity_sdk::contract::{Act, Request};
use polity_sdk::kube::drain::{Drain, Options};
use polity_sdk::kube::node::Node;
use polity_sdk::test::World;
use polity_sdk::{Code, Context, Failure, Kind, Metadata, Next, cluster};
use polity_standalone::{Api, Store};
use polity_tests::kubernetes::{Assets, KubeServer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A server and a namespace of its own for one check.
struct Site {
    client: kube::Client,
    namespace: String,
}

/// The code of an answer, its `Retry-After`, and its body.
type Seen = (u16, Option<String>, Value);

impl Site {
    async fn new(client: kube::Client, name: &str) -> Self {
        let namespace = name.replace('_', "-").chars().take(60).collect::<String>();
        let namespace = namespace.trim_end_matches('-').to_owned();
        let site = Site { client, namespace };
        let body = json!({"metadata": {"name": site.namespace}});
        assert_eq!(site.ask("POST", "/api/v1/namespaces", &body).await.0, 201);
        site
    }

    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    fn budgets(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Seen {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind);
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = request.body(Body::from(body)).expect("a request");
        let response = self.client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let retry = response.headers().get("retry-after");
        let retry = retry.map(|value| value.to_str().expect("text").to_owned());
        let bytes = response.into_body().collect_bytes().await.expect("a body");
        (code, retry, serde_json::from_slice(&bytes).expect("JSON"))
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).await.2
    }

    async fn must(&self, method: &str, path: &str, body: Value) -> Value {
        let (code, _, answer) = self.ask(method, path, &body).await;
        assert!((200..300).contains(&code), "{method} {path}: {answer}");
        answer
    }

    /// A pod that a node has, and that serves.
    async fn serving(&self, name: &str) -> Value {
        self.pod(name, "a", "Running", true).await
    }

    /// A pod of an application that a node has.
    async fn pod(&self, name: &str, app: &str, phase: &str, ready: bool) -> Value {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        });
        self.must("POST", &self.pods(), pod).await;
        let ready = if ready { "True" } else { "False" };
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        let path = format!("{}/{name}/status", self.pods());
        self.must("PATCH", &path, json!({"status": status})).await
    }

    async fn budget(&self, name: &str, spec: Value) {
        let mut budget = json!({"metadata": {"name": name}, "spec": spec});
        if budget["spec"]["selector"].is_null() {
            budget["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
        }
        self.must("POST", &self.budgets(), budget).await;
    }

    /// Writes what a budget's status says where somebody counts.
    async fn count(&self, name: &str, expected: i64, desired: i64, healthy: i64) {
        let status = json!({
            "observedGeneration": 1, "expectedPods": expected, "desiredHealthy": desired,
            "currentHealthy": healthy, "disruptionsAllowed": (healthy - desired).max(0),
        });
        let path = format!("{}/{name}/status", self.budgets());
        self.must("PATCH", &path, json!({"status": status})).await;
    }

    async fn evict(&self, name: &str, options: Value) -> Seen {
        let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        if !options.is_null() {
            body["deleteOptions"] = options;
        }
        let path = format!("{}/{name}/eviction", self.pods());
        self.ask("POST", &path, &body).await
    }

    /// The paths of the fields that are wrong with an object.
    async fn faults(&self, path: &str, body: Value) -> Vec<String> {
        let (code, _, answer) = self.ask("POST", path, &body).await;
        assert_eq!(code, 422, "{body} {answer}");
        let causes = answer["details"]["causes"].as_array().into_iter().flatten();
        let fields = causes.map(|cause| cause["field"].as_str().unwrap_or_default().to_owned());
        fields.collect()
    }
}

async fn a_spent_budget_refuses_and_one_that_is_not_pays(site: Site) {
    site.serving("p").await;
    site.serving("q").await;
    site.budget("b", json!({"minAvailable": 1})).await;
    site.count("b", 2, 1, 2).await;
    let (code, retry, answer) = site.evict("p", json!({"gracePeriodSeconds": 7})).await;
    let success =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!((code, retry, answer), (201, None, success.clone()));
    let pod = site.get(&format!("{}/p", site.pods())).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 7);
    let conditions = pod["status"]["conditions"].as_array().expect("conditions");
    let mut target = conditions[1].clone();
    assert!(target["lastTransitionTime"].is_string());
    target["lastTransitionTime"] = Value::Null;
    let expected = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": null,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    assert_eq!(target, expected);
    let budget = site.get(&format!("{}/b", site.budgets())).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(budget["status"]["conditions"][0]["reason"], "InsufficientPods");

    assert_eq!(site.evict("p", Value::Null).await.2, success, "it ends already");
    site.count("b", 2, 1, 1).await;
    let refused = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests",
        "details": {"causes": [{
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
        }]},
    });
    assert_eq!(site.evict("q", Value::Null).await, (429, None, refused));
}

/// Of a real server alone: the embedded API counts in the transaction that makes a budget.
async fn a_budget_that_is_not_counted_yet_says_when_to_come_back(site: Site) {
    site.serving("p").await;
    site.budget("b", json!({"minAvailable": 0})).await;
    let refused = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests",
        "details": {
            "causes": [{
                "reason": "DisruptionBudget",
                "message": "The disruption budget b is still being processed by the server.",
            }],
            "retryAfterSeconds": 10,
        },
    });
    assert_eq!(
        site.evict("p", Value::Null).await,
        (429, Some("10".into()), refused)
    );
    site.count("b", 1, 0, 1).await;
    assert_eq!(site.evict("p", Value::Null).await.0, 201);
    // Of a pod that is not ready, nothing has to be counted.
    site.pod("u", "u", "Running", false).await;
    let spec = json!({
        "minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": {"app": "u"}},
    });
    site.budget("u", spec).await;
    assert_eq!(site.evict("u", Value::Null).await.0, 201);
}

async fn two_budgets_for_one_pod_are_an_error(site: Site) {
    site.serving("p").await;
    for name in ["b", "c"] {
        site.budget(name, json!({"minAvailable": 0})).await;
        site.count(name, 1, 0, 1).await;
    }
    let refused = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
        "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    });
    assert_eq!(site.evict("p", Value::Null).await, (500, None, refused));
}

/// The phase of a pod and whether it is ready, what its budget says about pods that are not, how many of two pods must
/// stay (the other pod is ready), how many such budgets there are, and the code of the answer to its eviction.
type Row = (&'static str, bool, Option<&'static str>, i64, usize, u16);

/// The rule of kube-apiserver (`pkg/registry/core/pod/storage/eviction.go`).
const RULE: [Row; 18] = [
    ("Running", true, None, 1, 1, 201),
    ("Running", true, None, 2, 1, 429),
    ("Running", true, Some("IfHealthyBudget"), 2, 1, 429),
    ("Running", true, Some("AlwaysAllow"), 2, 1, 429),
    ("Running", false, None, 0, 1, 201),
    ("Running", false, None, 1, 1, 201),
    ("Running", false, None, 2, 1, 429),
    ("Running", false, Some("IfHealthyBudget"), 1, 1, 201),
    ("Running", false, Some("IfHealthyBudget"), 2, 1, 429),
    ("Running", false, Some("AlwaysAllow"), 2, 1, 201),
    ("Running", true, None, 0, 0, 201),
    ("Running", true, None, 0, 2, 500),
    ("Running", false, Some("AlwaysAllow"), 2, 2, 500),
    ("Pending", false, None, 2, 1, 201),
    ("Pending", false, None, 2, 2, 201),
    ("Succeeded", false, None, 2, 1, 201),
    ("Failed", false, None, 2, 1, 201),
    ("Failed", true, Some("IfHealthyBudget"), 2, 1, 201),
];

async fn pods_go_by_the_rule_and_a_drain_asks_for_each(site: Site) {
    for (number, row) in RULE.into_iter().enumerate() {
        let (phase, ready, policy, stay, budgets, code) = row;
        let (app, name) = (format!("a{number}"), format!("p{number}"));
        site.pod(&format!("q{number}"), &app, "Running", true).await;
        let mut known = vec![site.pod(&name, &app, phase, ready).await];
        for nth in 0..budgets {
            let mut spec = json!({"minAvailable": stay, "selector": {"matchLabels": {"app": app}}});
            if let Some(policy) = policy {
                spec["unhealthyPodEvictionPolicy"] = policy.into();
            }
            let budget = format!("b{number}-{nth}");
            site.budget(&budget, spec).await;
            site.count(&budget, 2, stay, 1 + i64::from(ready)).await;
            known.push(site.get(&format!("{}/{budget}", site.budgets())).await);
        }
        let expected = match code {
            201 => Ok(()),
            429 => Err(Code::ResourceExhausted),
            _ => Err(Code::FailedPrecondition),
        };
        assert_eq!(answer_to_a_drain(known), Some(expected), "{row:?}");
        let (answered, _, answer) = site.evict(&name, Value::Null).await;
        assert_eq!(answered, code, "{row:?} {answer}");
    }
}

/// A machine that drains its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Machine {
    metadata: Metadata,
}

impl Kind for Machine {
    const API_VERSION: &'static str = "example.com/v1";
    const KIND: &'static str = "Machine";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

async fn drains(cx: Context<Machine, Value>) -> Result<Next, Failure> {
    let mut node = cx.ask(cluster::object::<Node>("n1")).await?;
    Drain::default().pass(&cx, &mut node, &Options::default()).await?;
    Ok(Next::settled())
}

/// What a drain is answered that finds these objects and asks for an eviction; `None` if it asks for none.
fn answer_to_a_drain(known: Vec<Value>) -> Option<Result<(), Code>> {
    let mut world = World::new(json!({
        "apiVersion": "example.com/v1", "kind": "Machine",
        "metadata": {"name": "m", "namespace": "home", "uid": "u"},
    }));
    world.exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    for object in known {
        world.exists(object);
    }
    let journal = world.pass(drains).journal;
    journal.into_iter().find_map(|entry| match entry.request {
        Request::Act(Act::Evict(_)) => Some(entry.answer.map(drop).map_err(|failure| failure.code)),
        _ => None,
    })
}

async fn what_is_no_eviction_of_this_pod_is_refused(site: Site) {
    site.serving("p").await;
    let path = format!("{}/p/eviction", site.pods());
    for body in [
        json!({"metadata": {}}),
        json!({"metadata": {"name": "q"}}),
        json!({"metadata": {"name": "p", "namespace": "other"}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
        json!({"apiVersion": "policy/v2", "kind": "Eviction", "metadata": {"name": "p"}}),
    ] {
        let (code, _, answer) = site.ask("POST", &path, &body).await;
        assert_eq!((code, &answer["reason"]), (400, &json!("BadRequest")), "{body}");
    }
    assert_eq!(site.ask("GET", &path, &Value::Null).await.0, 405);
    assert_eq!(site.evict("nobody", Value::Null).await.0, 404);
    let pod = site.get(&format!("{}/p", site.pods())).await;
    let uid = pod["metadata"]["uid"].as_str().expect("a uid");
    let other = json!({"preconditions": {"uid": "other", "resourceVersion": "1"}});
    let (code, _, answer) = site.evict("p", other).await;
    let message = format!(
        "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (other) does not match the UID in \
         record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!((code, answer["message"].as_str()), (409, Some(message.as_str())));
    assert_eq!(answer["details"], json!({"name": "p", "kind": "Pod"}));
    let bare = json!({"metadata": {"name": "p"}});
    assert_eq!(
        site.ask("POST", &path, &bare).await.0,
        201,
        "the path says it all"
    );
}

async fn a_grace_period_that_runs_is_only_ever_shortened(site: Site) {
    site.serving("p").await;
    let path = format!("{}/p", site.pods());
    let end = |pod: &Value| pod["metadata"]["deletionTimestamp"].clone();
    let first = site
        .must("DELETE", &path, json!({"gracePeriodSeconds": 600}))
        .await;
    for options in [json!({}), json!({"gracePeriodSeconds": 900})] {
        let pod = site.must("DELETE", &path, options).await;
        assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 600);
        assert_eq!(end(&pod), end(&first));
    }
    let ended = json!({"status": {"phase": "Failed"}});
    site.must("PATCH", &format!("{path}/status"), ended).await;
    let pod = site
        .must("DELETE", &path, json!({"gracePeriodSeconds": -5}))
        .await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 1);
    assert_ne!(end(&pod), end(&first));
    site.must("DELETE", &path, json!({})).await;
    assert_eq!(site.get(&path).await["kind"], "Pod", "it waits for its kubelet");
    site.must("DELETE", &path, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(site.ask("GET", &path, &Value::Null).await.0, 404);
}

async fn a_budget_that_makes_no_sense_is_refused(site: Site) {
    let requirement = |operator: &str, values: &[&str]| json!({"selector": {"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}});
    let at = "spec.selector.matchExpressions[0]";
    for (spec, expected) in [
        (
            json!({"minAvailable": 1, "maxUnavailable": "5%"}),
            vec!["spec".to_owned()],
        ),
        (json!({"minAvailable": "x"}), vec!["spec.minAvailable".to_owned()]),
        (json!({"minAvailable": "7"}), vec!["spec.minAvailable".to_owned()]),
        (
            json!({"maxUnavailable": "101%"}),
            vec!["spec.maxUnavailable".to_owned()],
        ),
        (
            json!({"maxUnavailable": -1}),
            vec!["spec.maxUnavailable".to_owned()],
        ),
        (
            json!({"unhealthyPodEvictionPolicy": "Never"}),
            vec!["spec.unhealthyPodEvictionPolicy".to_owned()],
        ),
        (requirement("In", &[]), vec![format!("{at}.values")]),
        (requirement("Exists", &["b"]), vec![format!("{at}.values")]),
        (requirement("Is", &[]), vec![format!("{at}.operator")]),
        (requirement("In", &["-"]), vec![format!("{at}.values[0]")]),
    ] {
        let body = json!({"metadata": {"name": "b"}, "spec": spec});
        assert_eq!(site.faults(&site.budgets(), body).await, expected, "{spec}");
    }
    let fresh = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}});
    let fresh = site.must("POST", &site.budgets(), fresh).await;
    assert_eq!(fresh["metadata"]["generation"], 1);
    let status =
        json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
    assert_eq!(fresh["status"], status);
    let path = format!("{}/b", site.budgets());
    let blind = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 2}});
    assert_eq!(site.ask("PUT", &path, &blind).await.0, 422);
    let negative = json!({"status": {"disruptionsAllowed": -1}});
    assert_eq!(
        site.ask("PATCH", &format!("{path}/status"), &negative).await.0,
        422
    );
}

async fn an_attachment_never_changes_but_for_its_status(site: Site) {
    let all = "/apis/storage.k8s.io/v1/volumeattachments";
    let attachment = |source: Value| {
        json!({
            "metadata": {"name": site.namespace},
            "spec": {"attacher": "csi.test", "nodeName": "n1", "source": source},
            "status": {"attached": true},
        })
    };
    let both = json!({"persistentVolumeName": "v", "inlineVolumeSpec": {}});
    for source in [json!({}), both, json!({"persistentVolumeName": ""})] {
        let (code, _, answer) = site.ask("POST", all, &attachment(source)).await;
        assert_eq!(code, 422, "{answer}");
    }
    let made = site
        .must("POST", all, attachment(json!({"persistentVolumeName": "v"})))
        .await;
    assert_eq!(
        (&made["status"], &made["metadata"]["generation"]),
        (&json!({"attached": false}), &Value::Null)
    );
    let path = format!("{all}/{}", site.namespace);
    let attached = json!({"status": {"attached": true}});
    let attached = site.must("PATCH", &format!("{path}/status"), attached).await;
    assert_eq!(attached["status"]["attached"], true);
    let moved = json!({"spec": {"nodeName": "n2"}});
    let (code, _, answer) = site.ask("PATCH", &path, &moved).await;
    assert_eq!(
        (code, &answer["details"]["causes"][0]["field"]),
        (422, &json!("spec"))
    );
    let by_node = format!("{all}?fieldSelector=spec.nodeName%3Dn1");
    assert_eq!(site.ask("GET", &by_node, &Value::Null).await.0, 400);
    site.must("DELETE", &path, Value::Null).await;
    assert_eq!(site.ask("GET", &path, &Value::Null).await.0, 404);
}

async fn evictions_are_discovered(site: Site) {
    let core = site.get("/api/v1").await;
    let mut found = core["resources"].as_array().into_iter().flatten();
    let eviction = found.find(|resource| resource["name"] == "pods/eviction");
    let expected = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true,
        "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"],
    });
    assert_eq!(eviction, Some(&expected));
}

/// A test of each check on the embedded API, and all of them in a row on a real server.
macro_rules! checks {
    ($($check:ident)*) => {
        mod embedded {
            use super::*;

            $(
                #[test]
                fn $check() {
                    runtime().block_on(async {
                        let store = Store::in_memory(Arc::new(SystemTime::now), [7; 16]);
                        let client = kube::Client::new(Api::new(Arc::new(store)), "default");
                        super::$check(Site::new(client, stringify!($check)).await).await;
                    });
                }
            )*
        }

        async fn all(client: &kube::Client) {
            $(
                let name = stringify!($check);
                // A panic is that of this test: the output says in which check.
                eprintln!("real: {name}");
                $check(Site::new(client.clone(), name).await).await;
            )*
        }
    };
}

checks! {
    a_spent_budget_refuses_and_one_that_is_not_pays
    two_budgets_for_one_pod_are_an_error
    pods_go_by_the_rule_and_a_drain_asks_for_each
    what_is_no_eviction_of_this_pod_is_refused
    a_grace_period_that_runs_is_only_ever_shortened
    a_budget_that_makes_no_sense_is_refused
    an_attachment_never_changes_but_for_its_status
    evictions_are_discovered
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn a_real_api_server_answers_evictions_alike() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    runtime().block_on(async {
        let client = server.client().await;
        all(&client).await;
        let site = Site::new(client, "not-counted-yet").await;
        a_budget_that_is_not_counted_yet_says_when_to_come_back(site).await;
    });
}
