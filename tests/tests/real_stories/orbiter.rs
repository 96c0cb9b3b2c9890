//! A cluster of machines in pools: it is created, is upgraded node by node under a disruption budget while an agent
//! dies, and loses a node. Orbiter and each agent are processes of their own, each with only the rights that it needs.

use std::sync::Arc;

use http::Request;
use kube::Client;
use polity::clock::Clock;
use polity_cluster::Cluster;
use polity_core::call::Write;
use polity_core::contract::{Act, Event, EventType, ObjectRef, Request as PolicyRequest};
use polity_core::object::{Object, ResourceVersion};
use polity_core::record::PassRecord;
use polity_core::time::Unix;
use polity_sim::{Happened, PoolMachine, Simulated as _};
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::{account_of, allow_agent};
use polity_tests::host_harness::orbiter::{self, ORBITER};
use polity_tests::host_harness::{LEASE, Site};
use polity_tests::kubernetes::{Assets, KubeServer};
use serde_json::{Value, json};

use crate::real_stories::scene::{Scene, Setting, alike, condition, named, took};
use crate::real_stories::seen::{NODE, some};

const ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";
const READY: &str = "alpha.node.caos.ch/ready";
const CURRENT: &str = "alpha.kubelet.caos.ch/current-version";

const OLD: &str = "1.30.2";
const NEW: &str = "1.30.4";
/// The nodes, in the order in which they are changed.
const NODES: [&str; 3] = ["o-cp-0", "o-w-0", "o-w-1"];

/// What a person sees of the Orb. Addresses are drawn from its uid.
const ORB: [&str; 8] = [
    "metadata.finalizers",
    "spec",
    "status.phase",
    "status.machines",
    "status.initialized",
    "status.changing.node",
    "status.cursor",
    "status.conditions",
];

#[test]
fn a_cluster_is_upgraded_node_by_node_by_agents_that_reach_their_own_node_alone() {
    alike(cluster, upgraded_and_smaller);
}

/// Governs Orbs and, each by a process of its own, the nodes of one. Nobody waits for much longer than a second.
fn cluster() -> Setting {
    let short = json!({"min": "100ms", "max": "100ms"});
    let configuration = json!({"pause": "1s", "drainRetry": "1s", "evictionGrace": "1s"});
    let mut orbs = orbiter::orbs(configuration, retry());
    orbs["spec"]["limits"] = patient();
    let core = |kind: &str| reference("v1", kind, None, "").kind;
    Setting {
        bindings: vec![orbs],
        overrides: json!({
            "machines": {"nodeName": "{name}"},
            "pools": {"install": short, "init": short, "join": short, "remove": short},
            // Long enough to be killed in the middle of it.
            "packages": {"takes": {"min": "3s", "max": "3s"}},
        }),
        mortals: vec![core("Node"), core("Pod")],
        agents: NODES.map(agent).to_vec(),
        ..Setting::default()
    }
}

/// Governs one Node by its agent.
fn agent(node: &str) -> Value {
    let mut agent = orbiter::agent(node, retry());
    agent["spec"]["policies"]["lifecycle"]["configuration"]["pause"] = json!("1s");
    agent["spec"]["limits"] = patient();
    agent
}

/// What failed is tried again soon.
fn retry() -> Value {
    json!({"short": "500ms", "medium": "500ms", "long": "1s"})
}

/// The pauses are shorter than a host otherwise lets its keys pass.
fn patient() -> Value {
    json!({"burst": 1000})
}

fn orb() -> Value {
    let pool = |name: &str, nodes: u32| json!({"provider": "static", "pool": name, "nodes": nodes});
    json!({
        "apiVersion": ORBITER, "kind": "Orb", "metadata": {"name": "o"},
        "spec": {
            "controlPlane": pool("cp", 1), "workers": [pool("w", 2)],
            "versions": {"kubernetes": OLD, "containerd": "1.7.1"},
        },
    })
}

fn node(name: &str) -> ObjectRef {
    reference("v1", "Node", None, name)
}

fn pod(name: &str) -> ObjectRef {
    reference("v1", "Pod", Some("default"), name)
}

fn reason(orb: &Value) -> Value {
    condition(orb, "Ready")[1].clone()
}

fn says<'a>(node: &'a Value, annotation: &str) -> &'a str {
    node["metadata"]["annotations"][annotation]
        .as_str()
        .unwrap_or_default()
}

/// What a person sees of a node. Of its conditions a real API server leaves out what is empty.
fn shown(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let conditions =
        conditions.map(|condition| json!([condition["type"], condition["status"], condition["reason"]]));
    let mut seen = some(node, &NODE);
    seen["conditions"] = conditions.collect();
    seen["cordonedByOrbiter"] = json!(is_marked(node));
    seen
}

fn is_marked(node: &Value) -> bool {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|taint| taint["key"] == "orbiter.polity.dev/updating")
}

/// A ready pod of the workload, or one that is not.
async fn run(scene: &Scene, name: &str, on: &str, ready: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": on, "terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "web"}]},
    });
    scene.create(&object).await;
    say_ready(scene, name, ready).await;
}

async fn say_ready(scene: &Scene, name: &str, ready: &str) {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    scene
        .edit(&pod(name), Some("status"), json!({"status": status}))
        .await;
}

/// The workload needs one of its pods; waits until somebody has counted that it has that.
async fn budget(scene: &Scene) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    scene.create(&budget).await;
    scene
        .until(&named(&budget), |budget| {
            let status = &budget["status"];
            status["observedGeneration"] == budget["metadata"]["generation"]
                && status["currentHealthy"] == 1
                && status["disruptionsAllowed"] == 0
        })
        .await;
}

fn machines(scene: &Scene) -> Vec<PoolMachine> {
    let clouds = scene.site.clouds.all();
    let sim = clouds.iter().find_map(|cloud| cloud.simulation());
    sim.map(|sim| sim.inspect(|sim, now| sim.pool_machines(now)))
        .unwrap_or_default()
}

/// On what this was begun, in order.
fn begun(scene: &Scene, operation: &str) -> Vec<String> {
    let effects = scene.site.effects().into_iter();
    let begun = effects.filter(|it| it.operation == operation && it.what == Happened::Submitted);
    begun.map(|effect| effect.intent).collect()
}

/// How often the cloud was told to do this.
fn acts(passes: &[PassRecord], operation: &str) -> usize {
    let roles = passes.iter().flat_map(|pass| &pass.roles);
    let entries = roles.flat_map(|role| &role.journal);
    let told = |request: &PolicyRequest| matches!(request, PolicyRequest::Act(Act::Cloud(act)) if act.operation == operation);
    entries.filter(|entry| told(&entry.request)).count()
}

/// The versions from which and until which the node might be changed, as its agent saw it. Versions of one API server are in
/// order, however late an agent hears of them.
fn allowed(passes: &[PassRecord]) -> (ResourceVersion, ResourceVersion) {
    let seen = passes.iter().filter_map(|pass| pass.object.as_deref());
    let nodes = seen.map(|json| serde_json::from_str::<Value>(json).expect("JSON"));
    let allowed = nodes.filter(|node| says(node, ALLOWED) == "true");
    let versions: Vec<ResourceVersion> = allowed.map(|node| Object::new(node).version()).collect();
    (
        *versions.first().expect("a pass that may change it"),
        versions[versions.len() - 1],
    )
}

fn assert_in_order(passes: &[PassRecord], edges: &[&str]) {
    let first = |edge: &&str| passes.iter().position(|pass| took(pass, &format!("ORB-{edge}")));
    let order: Vec<_> = edges.iter().map(first).collect();
    assert!(
        order.iter().all(Option::is_some) && order.is_sorted(),
        "{edges:?} at {order:?}"
    );
}

/// Waits until this node has its new packages, may not be changed any more, and its agent has said so.
async fn until_changed(scene: &Scene, name: &str) -> Value {
    scene
        .until(&node(name), |node| {
            let is_current = condition(node, "PackagesEnsured") == json!(["True", "Current"]);
            (says(node, CURRENT), says(node, ALLOWED), is_current) == (NEW, "false", true)
        })
        .await
}

async fn upgraded_and_smaller(scene: &mut Scene) {
    let o = named(&orb());
    comes_to_be(scene, &o).await;
    is_upgraded(scene, &o).await;
    gets_smaller(scene, &o).await;
    for name in NODES {
        assert_kept_to_its_node(scene, name);
    }
}

/// How kinds are served.
const DISCOVERY: [&str; 4] = [
    "GET /api",
    "GET /apis",
    "GET /api/v1",
    "GET /apis/events.k8s.io/v1",
];

/// Its own Node, by a list and a watch of one name, and after a conflict by a look; Events; and how kinds are served.
fn assert_kept_to_its_node(scene: &Scene, name: &str) {
    let own = [
        "GET /api/v1/nodes".to_owned(),
        format!("PATCH /api/v1/nodes/{name}"),
        format!("PATCH /api/v1/nodes/{name}/status"),
    ];
    let (look, all) = (format!("GET /api/v1/nodes/{name}"), scene.requested_by(name));
    let is_expected = |request: &&String| {
        own.contains(request)
            || **request == look
            || request.contains(" /apis/events.k8s.io/v1/namespaces/default/events")
            || DISCOVERY.contains(&request.as_str())
    };
    let others: Vec<&String> = all.iter().filter(|request| !is_expected(request)).collect();
    assert_eq!(others, Vec::<&String>::new(), "{name}");
    assert!(own.iter().all(|request| all.contains(request)), "{name}: {all:?}");
}

async fn comes_to_be(scene: &mut Scene, o: &ObjectRef) {
    scene.create(&orb()).await;
    let running = scene.until(o, |orb| reason(orb) == "Running").await;
    scene.sees("the cluster runs", some(&running, &ORB));
    scene
        .sees_table("kubectl get orbs", &format!("/apis/{ORBITER}/orbs"))
        .await;
    for name in NODES {
        let turn = format!("{name} has joined");
        scene.sees(&turn, shown(&scene.get(&node(name)).await));
        assert_in_order(&scene.passes_of(&node(name)), &["06", "32", "07", "10"]);
    }
    assert_in_order(
        &scene.passes_of(o),
        &["03", "05", "08", "09a", "09b", "15n", "28"],
    );
    assert_eq!(begun(scene, "kubeadm.init").len(), 1);
    assert_eq!(begun(scene, "node.ensure").len(), 3);
}

async fn is_upgraded(scene: &mut Scene, o: &ObjectRef) {
    run(scene, "web-1", "o-w-0", "True").await;
    run(scene, "web-2", "elsewhere", "False").await;
    budget(scene).await;
    let patch = json!({"spec": {"versions": {"kubernetes": NEW}}});
    scene.edit(o, None, patch).await;

    // The control plane comes first; the first worker has a pod that has to stay.
    let refused = scene.until(o, |orb| reason(orb) == "DrainRefused").await;
    scene.sees("the budget stands in the way", some(&refused, &ORB));
    scene.sees(
        "the control plane is done",
        shown(&until_changed(scene, "o-cp-0").await),
    );
    scene.sees(
        "the first worker is cordoned",
        shown(&scene.get(&node("o-w-0")).await),
    );
    assert_eq!(
        scene.get(&pod("web-1")).await["metadata"]["deletionTimestamp"],
        Value::Null
    );

    // Another pod takes over; while packages are installed the agent dies.
    let done = scene.passes_of(&node("o-w-0")).len();
    say_ready(scene, "web-2", "True").await;
    scene.until_gone(&pod("web-1")).await;
    scene
        .until_pass(&node("o-w-0"), done, |pass| {
            acts(std::slice::from_ref(pass), "node.ensure") == 1
        })
        .await;
    scene.kill_agent("o-w-0").await;
    let (orbs, agents) = (scene.passes_of(o).len(), scene.passes_of(&node("o-w-0")).len());
    scene.until_pass(o, orbs + 3, |pass| took(pass, "ORB-24")).await;
    let waits = scene.until(o, |orb| reason(orb) == "WaitingForNodeAgent").await;
    scene.sees("its agent is waited for", some(&waits, &ORB));
    scene.sees("its node is not ready", shown(&scene.get(&node("o-w-0")).await));
    let last = scene.get(&node("o-w-1")).await;
    scene.sees("no other one is touched", shown(&last));
    assert_eq!((says(&last, CURRENT), says(&last, ALLOWED)), (OLD, ""));

    scene.start_agent("o-w-0");
    for name in &NODES[1..] {
        let turn = format!("{name} is done");
        scene.sees(&turn, shown(&until_changed(scene, name).await));
    }
    let running = scene.until(o, |orb| reason(orb) == "Running").await;
    scene.sees("the cluster is upgraded", some(&running, &ORB));
    let after = &scene.passes_of(&node("o-w-0"))[agents..];
    assert_in_order(after, &["26", "11"]);
    assert_eq!(acts(after, "node.ensure"), 0, "the machine had gone on");

    assert_in_order(&scene.passes_of(o), &["15", "18", "19", "24", "22", "27"]);
    let mut until = ResourceVersion::default();
    for name in NODES {
        let passes = scene.passes_of(&node(name));
        assert_eq!(acts(&passes, "node.ensure"), 2, "{name}");
        let (from, to) = allowed(&passes);
        assert!(from > until, "{name} may change before the one before is done");
        until = to;
    }
    assert_eq!(begun(scene, "node.ensure").len(), 6);
    assert!(machines(scene).iter().all(|machine| machine.reboots == 1));
    assert!(scene.get(&pod("web-2")).await.is_object());
}

async fn gets_smaller(scene: &mut Scene, o: &ObjectRef) {
    let mut wanted = orb()["spec"]["workers"].clone();
    wanted[0]["nodes"] = json!(1);
    let done = scene.passes_of(o).len();
    scene.edit(o, None, json!({"spec": {"workers": wanted}})).await;
    scene.until_gone(&node("o-w-1")).await;
    scene.until_pass(o, done, |pass| took(pass, "ORB-28")).await;
    let running = scene.until(o, |orb| reason(orb) == "Running").await;
    scene.sees("one worker is left", some(&running, &ORB));
    let left: Vec<String> = machines(scene).into_iter().map(|machine| machine.node).collect();
    assert_eq!(left, NODES[..2]);
    let after = &scene.passes_of(o)[done..];
    assert_in_order(after, &["04", "28"]);
}

/// What an API server answers an agent: a status code, 200 for whatever it allows.
async fn answer(agent: &Client, method: &str, path: &str) -> u16 {
    let patch = json!({"metadata": {"annotations": {READY: "true"}}});
    let body = if method == "PATCH" {
        patch.to_string()
    } else {
        String::new()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/merge-patch+json")
        .body(body.into_bytes())
        .expect("a request");
    match agent.request_text(request).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{method} {path}: {other}"),
    }
}

/// An Event.
fn about(node: &ObjectRef) -> Write {
    Write::Event {
        object: node.clone(),
        uid: "uid".into(),
        event: Event {
            kind: EventType::Warning,
            reason: "NoSuchVersion".into(),
            message: "no kubelet 7.0".into(),
        },
        now: Unix::default(),
    }
}

#[test]
fn an_agent_reads_and_writes_no_other_node() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let clock = Arc::new(Clock::real());
        let site = Site::on(server.client().await, server.client().await, clock, 1, None);
        let binding = agent("own");
        let (namespace, account) = account_of(&binding);
        allow_agent(&site, &binding).await;
        for name in ["own", "other"] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            site.cluster.apply(&node).await.expect("a Node");
        }
        let agent = server.client_of(namespace, &account).await;
        // What it has to say about its Node it says, and counts how often.
        let cluster = Cluster::new(agent.clone(), LEASE);
        for _ in 0..2 {
            let said = cluster.write(&about(&node("own"))).await;
            said.unwrap_or_else(|failure| panic!("{failure}"));
        }
        let events = site.list("v1", "Event").await;
        let events = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == "own");
        let counts: Vec<&Value> = events.map(|event| &event["series"]["count"]).collect();
        assert_eq!(counts, [2]);
        let nodes = "/api/v1/nodes";
        let own = "fieldSelector=metadata.name%3Down";
        let other = "fieldSelector=metadata.name%3Dother";
        for (method, path) in [
            ("GET", format!("{nodes}/own")),
            ("GET", format!("{nodes}?{own}")),
            ("GET", format!("{nodes}?{own}&watch=true&timeoutSeconds=1")),
            ("PATCH", format!("{nodes}/own")),
            ("PATCH", format!("{nodes}/own/status")),
        ] {
            assert_eq!(answer(&agent, method, &path).await, 200, "{method} {path}");
        }
        for (method, path) in [
            ("GET", format!("{nodes}/other")),
            ("GET", nodes.to_owned()),
            ("GET", format!("{nodes}?{other}")),
            ("GET", format!("{nodes}?{other}&watch=true&timeoutSeconds=1")),
            ("PATCH", format!("{nodes}/other")),
            ("PATCH", format!("{nodes}/other/status")),
            ("DELETE", format!("{nodes}/other")),
            ("DELETE", format!("{nodes}/own")),
            ("POST", nodes.to_owned()),
            ("GET", "/api/v1/pods".to_owned()),
            ("GET", "/api/v1/secrets".to_owned()),
            ("GET", "/api/v1/namespaces/default/events".to_owned()),
            (
                "GET",
                "/apis/events.k8s.io/v1/namespaces/default/events".to_owned(),
            ),
            ("GET", "/apis/polity.dev/v1alpha1/policybindings".to_owned()),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases".to_owned(),
            ),
        ] {
            assert_eq!(answer(&agent, method, &path).await, 403, "{method} {path}");
        }
    });
}
