//! The embedded API and a real kube-apiserver serve the scale subresource alike: the same checks on both, and
//! `kubectl scale` with a set of machines, whose definition `polity crds` prints.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use kube::client::Body;
use polity_standalone::{Api, Store};
use polity_tests::guests;
use polity_tests::kubernetes::{Assets, KubeServer};
use polity_tests::simulation::store::merge;
use serde_json::{Value, json};

use crate::page::Running;

const GROUP: &str = "/apis/scales.example.test/v1";
const RACKS: &str = "/apis/scales.example.test/v1/namespaces/default/racks";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A server that serves racks.
struct Site(kube::Client);

impl Site {
    async fn new(client: kube::Client) -> Self {
        let site = Site(client);
        site.must("POST", DEFINITIONS, definition("racks", &paths()))
            .await;
        // A definition takes effect a moment later.
        while site.ask("GET", RACKS, &Value::Null).await.0 != 200 || site.discovered().await.is_null() {
            tokio::task::yield_now().await;
        }
        site
    }

    async fn send(&self, method: &str, path: &str, accept: &str, body: &Value) -> (u16, Value) {
        let kind = match (method, body) {
            ("PATCH", Value::Array(_)) => "application/json-patch+json",
            ("PATCH", _) => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind).header("accept", accept);
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = request.body(Body::from(body)).expect("a request");
        let response = self.0.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await.expect("a body");
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.send(method, path, "application/json", body).await
    }

    async fn must(&self, method: &str, path: &str, body: Value) -> Value {
        let (code, answer) = self.ask(method, path, &body).await;
        assert!((200..300).contains(&code), "{method} {path}: {answer}");
        answer
    }

    async fn rack(&self, name: &str, spec: Value) -> Value {
        let rack = json!({
            "apiVersion": "scales.example.test/v1", "kind": "Rack", "metadata": {"name": name}, "spec": spec,
        });
        self.must("POST", RACKS, rack).await
    }

    /// The entry of the scale in the list of what the group has; null where it is not there.
    async fn discovered(&self) -> Value {
        let list = self.ask("GET", GROUP, &Value::Null).await.1;
        let mut all = list["resources"].as_array().into_iter().flatten();
        all.find(|resource| resource["name"] == "racks/scale")
            .cloned()
            .unwrap_or_default()
    }

    /// Changes a scale, and returns the code of the refusal.
    async fn refused(&self, method: &str, path: &str, body: Value) -> u16 {
        let (code, answer) = self.ask(method, path, &body).await;
        assert_eq!(answer["kind"], "Status", "{method} {body}: {code} {answer}");
        code
    }
}

fn paths() -> Value {
    json!({
        "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.count",
        "labelSelectorPath": ".status.selector",
    })
}

/// The definition of a kind with this scale.
fn definition(plural: &str, scale: &Value) -> Value {
    let (number, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": number, "color": text}},
            "status": {"type": "object", "properties": {"count": number, "selector": text}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.scales.example.test")},
        "spec": {
            "group": "scales.example.test", "scope": "Namespaced", "names": {"plural": plural, "kind": "Rack"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale},
            }],
        },
    })
}

async fn a_scale_is_discovered(site: &Site) {
    let verbs = json!(["get", "patch", "update"]);
    let expected = json!({
        "name": "racks/scale", "singularName": "", "namespaced": true,
        "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": verbs,
    });
    assert_eq!(site.discovered().await, expected);
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let expected = json!({
        "subresource": "scale", "verbs": verbs,
        "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    });
    loop {
        let (_, list) = site.send("GET", "/apis", aggregated, &Value::Null).await;
        let mut groups = list["items"].as_array().into_iter().flatten();
        let ours = groups.find(|group| group["metadata"]["name"] == "scales.example.test");
        // It is brought up to date after the other.
        if let Some(parts) = ours.and_then(|group| group.pointer("/versions/0/resources/0/subresources")) {
            let parts = parts.as_array().expect("a list");
            return assert!(parts.contains(&expected), "{parts:?}");
        }
        tokio::task::yield_now().await;
    }
}

async fn a_scale_shows_the_numbers_of_its_object_and_changes_the_wanted_one(site: &Site) {
    let rack = site.rack("shown", json!({"size": 3, "color": "red"})).await;
    let path = format!("{RACKS}/shown/scale");
    let observed = json!({"status": {"count": 2, "selector": "a=b"}});
    let rack_now = site
        .must("PATCH", &format!("{RACKS}/shown/status"), observed.clone())
        .await;
    let metadata = |version: &Value| {
        json!({
            "name": "shown", "namespace": "default", "uid": rack["metadata"]["uid"],
            "resourceVersion": version, "creationTimestamp": rack["metadata"]["creationTimestamp"],
        })
    };
    let shown = site.must("GET", &path, Value::Null).await;
    let expected = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": metadata(&rack_now["metadata"]["resourceVersion"]),
        "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"},
    });
    assert_eq!(shown, expected);

    // Of all this only the number reaches the object.
    let change =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 5}, "status": {"replicas": 9}});
    let changed = site.must("PATCH", &path, change).await;
    let stored = site.must("GET", &format!("{RACKS}/shown"), Value::Null).await;
    assert_eq!(
        changed["metadata"],
        metadata(&stored["metadata"]["resourceVersion"])
    );
    assert_eq!(changed["spec"], json!({"replicas": 5}));
    assert_eq!(stored["spec"], json!({"size": 5, "color": "red"}));
    assert_eq!(stored["status"], observed["status"]);
    assert_eq!(stored["metadata"]["labels"], Value::Null);
    assert_eq!(stored["metadata"]["generation"], 2);

    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": 6}]);
    let changed = site.must("PATCH", &path, operations).await;
    assert_eq!(changed["spec"], json!({"replicas": 6}));
    // Neither a resourceVersion nor a type is needed, and no number is none.
    let nothing = json!({"metadata": {"name": "shown"}});
    assert_eq!(site.must("PUT", &path, nothing).await["spec"], json!({}));
    let stored = site.must("GET", &format!("{RACKS}/shown"), Value::Null).await;
    assert_eq!(stored["spec"], json!({"size": 0, "color": "red"}));
}

async fn a_change_that_makes_no_sense_is_refused(site: &Site) {
    let rack = site.rack("refused", json!({"size": 3})).await;
    let path = format!("{RACKS}/refused/scale");
    let with = |metadata: Value, spec: Value| {
        let mut scale = json!({"metadata": {"name": "refused"}, "spec": spec});
        merge(&mut scale["metadata"], &metadata);
        scale
    };
    let of_another_type = json!({
        "apiVersion": "scales.example.test/v1", "kind": "Rack", "metadata": {"name": "refused"},
        "spec": {"replicas": 1},
    });
    let one = json!({"replicas": 1});
    for (code, scale) in [
        (409, with(json!({"uid": "another"}), one.clone())),
        (400, with(json!({"name": "another"}), one.clone())),
        (400, with(json!({"namespace": "another"}), one.clone())),
        (400, json!({"spec": {"replicas": 1}})),
        (400, of_another_type),
        (400, with(json!({}), json!({"replicas": "one"}))),
        (400, with(json!({}), json!({"replicas": 1e10}))),
        (400, with(json!({}), json!({"replicas": 1.5}))),
        (400, with(json!({}), json!([]))),
    ] {
        assert_eq!(site.refused("PUT", &path, scale.clone()).await, code, "{scale}");
    }
    let words = json!({"spec": {"replicas": "one"}});
    assert_eq!(site.refused("PATCH", &path, words).await, 422);
    let unknown = with(json!({}), json!({"replcas": 1}));
    let strictly = format!("{path}?fieldValidation=Strict");
    assert_eq!(site.refused("PUT", &strictly, unknown.clone()).await, 400);
    assert_eq!(site.refused("PATCH", &strictly, unknown).await, 422);

    for method in ["PUT", "PATCH"] {
        let (code, answer) = site
            .ask(method, &path, &with(json!({}), json!({"replicas": -1})))
            .await;
        let details = &answer["details"];
        assert_eq!((code, &details["kind"]), (422, &json!("Rack")), "{answer}");
        assert_eq!(details["causes"][0]["field"], ".spec.size", "{answer}");
    }
    for method in ["POST", "DELETE"] {
        assert_eq!(
            site.refused(method, &path, with(json!({}), one.clone())).await,
            405
        );
    }
    let absent = json!({"metadata": {"name": "absent"}, "spec": {"replicas": 1}});
    for method in ["GET", "PUT", "PATCH"] {
        let path = format!("{RACKS}/absent/scale");
        let body = if method == "GET" {
            Value::Null
        } else {
            absent.clone()
        };
        assert_eq!(site.refused(method, &path, body).await, 404);
    }
    // Somebody else was faster.
    let seen = json!({"resourceVersion": rack["metadata"]["resourceVersion"]});
    site.must("PUT", &path, with(seen.clone(), json!({"replicas": 4})))
        .await;
    for method in ["PUT", "PATCH"] {
        let late = with(seen.clone(), json!({"replicas": 5}));
        assert_eq!(site.refused(method, &path, late).await, 409, "{method}");
    }
    let stored = site.must("GET", &format!("{RACKS}/refused"), Value::Null).await;
    assert_eq!(stored["spec"], json!({"size": 4}));
}

async fn an_object_without_a_number_has_no_scale_until_it_gets_one(site: &Site) {
    site.rack("bare", json!({})).await;
    let path = format!("{RACKS}/bare/scale");
    let (code, answer) = site.ask("GET", &path, &Value::Null).await;
    assert_eq!((code, &answer["reason"]), (500, &json!("InternalError")));
    let message = "Internal error occurred: the spec replicas field \".spec.size\" does not exist";
    assert_eq!(answer["message"], message);
    let (code, answer) = site.ask("PATCH", &path, &json!({})).await;
    let message = "the spec replicas field \".spec.size\" cannot be empty";
    assert_eq!((code, &answer["message"]), (400, &json!(message)));
    let change = json!({"spec": {"replicas": 2}});
    assert_eq!(
        site.must("PATCH", &path, change.clone()).await["spec"],
        change["spec"]
    );
}

async fn the_numbers_of_an_object_are_checked_wherever_they_are_written(site: &Site) {
    let body = |size: i64| {
        json!({
            "apiVersion": "scales.example.test/v1", "kind": "Rack", "metadata": {"name": "checked"},
            "spec": {"size": size},
        })
    };
    for size in [-1, 1 << 31] {
        let (code, answer) = site.ask("POST", RACKS, &body(size)).await;
        let field = &answer["details"]["causes"][0]["field"];
        assert_eq!((code, field), (422, &json!(".spec.size")), "{answer}");
    }
    site.must("POST", RACKS, body(1)).await;
    let status = format!("{RACKS}/checked/status");
    let (code, answer) = site
        .ask("PATCH", &status, &json!({"status": {"count": -1}}))
        .await;
    let field = &answer["details"]["causes"][0]["field"];
    assert_eq!((code, field), (422, &json!(".status.count")), "{answer}");
}

async fn a_definition_whose_paths_lead_elsewhere_is_refused(site: &Site) {
    for (field, path, why) in [
        (
            "specReplicasPath",
            "spec.size",
            "must be a simple json path starting with .",
        ),
        (
            "specReplicasPath",
            ".status.size",
            "should be a json path under .spec",
        ),
        ("specReplicasPath", "", "Required value"),
        (
            "statusReplicasPath",
            ".spec.count",
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            ".metadata.labels",
            "should be a json path under either .spec or .status",
        ),
    ] {
        let mut scale = paths();
        scale[field] = json!(path);
        let (code, answer) = site
            .ask("POST", DEFINITIONS, &definition("shelves", &scale))
            .await;
        assert_eq!(code, 422, "{field} {path}: {answer}");
        let message = answer["message"].as_str().expect("a message");
        assert!(message.contains(field) && message.contains(why), "{message}");
    }
}

async fn all(client: kube::Client) {
    let site = &Site::new(client).await;
    a_scale_is_discovered(site).await;
    a_scale_shows_the_numbers_of_its_object_and_changes_the_wanted_one(site).await;
    a_change_that_makes_no_sense_is_refused(site).await;
    an_object_without_a_number_has_no_scale_until_it_gets_one(site).await;
    the_numbers_of_an_object_are_checked_wherever_they_are_written(site).await;
    a_definition_whose_paths_lead_elsewhere_is_refused(site).await;
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn the_embedded_api_serves_scales() {
    let store = Store::in_memory(Arc::new(SystemTime::now), [7; 16]);
    runtime().block_on(async {
        all(kube::Client::new(Api::new(Arc::new(store)), "default")).await;
    });
}

#[test]
fn a_real_api_server_serves_scales_alike() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    runtime().block_on(async { all(server.client().await).await });
}

/// A set of machines, which no policy governs here.
const SET: &str = "
apiVersion: mcm.polity.dev/v1alpha1
kind: MachineSet
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {name: web}}
  template:
    metadata: {labels: {name: web}}
    spec: {class: {kind: MachineClass, name: small}}
";

/// The set and its definition, as `polity crds` prints it.
fn manifests(folder: &Path) -> [PathBuf; 2] {
    let printed = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["-o", "json", "crds"])
        .arg(guests::folder().join("mcm_machineset.wasm"))
        .output()
        .expect("it runs");
    let printed = printed_by("polity crds", printed);
    let mut all = printed
        .lines()
        .filter(|line| line.contains("machinesets.mcm.polity.dev"));
    let files = ["definition.json", "set.yaml"].map(|name| folder.join(name));
    for (file, text) in files.iter().zip([all.next().expect("it is printed"), SET]) {
        std::fs::write(file, text).expect("written");
    }
    files
}

#[track_caller]
fn printed_by(what: &str, output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// A host with an embedded API and without objects, which has written its kubeconfig.
fn embedded(kubeconfig: &Path) -> Running {
    let mut host = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--listen", "0", "--write-kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut says = BufReader::new(host.stderr.take().expect("its words")).lines();
    let mut said = says.by_ref().map_while(Result::ok);
    assert!(said.any(|line| line.contains("serving https://")));
    // What it says later is read, so that it never waits for a reader.
    std::thread::spawn(move || says.for_each(drop));
    Running(host)
}

/// Scales a set by its name and by its short name, without and with a condition.
fn scale_a_set(kubectl: impl Fn(&[&str]) -> Output, [definition, set]: &[PathBuf; 2]) {
    let run = |arguments: &[&str]| printed_by(&arguments.join(" "), kubectl(arguments));
    let replicas = || {
        let at = ["get", "machineset", "web", "-o=jsonpath={.spec.replicas}"];
        run(&at)
    };
    run(&["create", "-f", definition.to_str().expect("text")]);
    run(&[
        "wait",
        "--for=condition=Established",
        "crd/machinesets.mcm.polity.dev",
        "--timeout=120s",
    ]);
    // The kind is discovered a moment later.
    while !kubectl(&["get", "machinesets"]).status.success() {}
    run(&["create", "-f", set.to_str().expect("text")]);

    let scaled = run(&["scale", "machineset", "web", "--replicas=5"]);
    assert_eq!(scaled, "machineset.mcm.polity.dev/web scaled\n");
    assert_eq!(replicas(), "5");
    let numbers = "-o=jsonpath={.kind} {.spec.replicas} {.status.replicas}";
    let shown = run(&["get", "machineset", "web", "--subresource=scale", numbers]);
    assert_eq!(shown, "Scale 5 0");
    let refused = kubectl(&["scale", "mcs/web", "--current-replicas=4", "--replicas=9"]);
    assert!(!refused.status.success(), "{refused:?}");
    run(&["scale", "mcs/web", "--current-replicas=5", "--replicas=0"]);
    assert_eq!(replicas(), "0");
}

#[test]
fn kubectl_scales_a_set_on_both_servers() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let place = tempfile::tempdir().expect("a folder");
    let files = manifests(place.path());

    let kubeconfig = place.path().join("kubeconfig");
    let _host = embedded(&kubeconfig);
    let kubectl = |arguments: &[&str]| {
        let mut kubectl = assets.kubectl(&kubeconfig, place.path());
        kubectl.args(arguments).output().expect("kubectl runs")
    };
    scale_a_set(kubectl, &files);

    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    scale_a_set(|arguments| server.kubectl(arguments), &files);
}
