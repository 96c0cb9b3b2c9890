//! Gardener's machines: a node joins, is drained as its disruption budget allows, and is removed before its machine.

use polity_core::call::Write;
use polity_core::contract::{Act, Code, Effect, Eviction, Kind, Next, ObjectRef, Precondition};
use polity_core::object::Object;
use polity_core::record::PassRecord;
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::mcm::{self, MCM};
use serde_json::{Value, json};

use crate::real_stories::scene::{Scene, Setting, alike, calls, changes, condition, named, took};
use crate::real_stories::seen::{NODE, some};

/// What a person sees of a machine; how often what was tried is nobody's agreement.
const MACHINE: [&str; 8] = [
    "metadata.finalizers",
    "metadata.labels",
    "metadata.annotations",
    "spec",
    "status.providerID",
    "status.currentStatus",
    "status.lastOperation",
    "status.conditions",
];
/// Keeps a pod that ended in sight.
const IN_SIGHT: &str = "test.polity.dev/in-sight";

#[test]
fn a_node_leaves_once_the_budget_lets_its_pods_go_and_its_machine_last() {
    alike(workers, leaves_in_order);
}

#[test]
fn a_machine_that_is_to_go_by_force_waits_for_no_budget() {
    alike(workers, goes_by_force);
}

#[test]
fn a_namespace_that_is_deleted_goes_after_its_machines() {
    alike(workers_of_a_team, goes_with_its_namespace);
}

#[test]
fn machines_are_left_alone_while_the_api_server_of_their_nodes_is_away() {
    alike(workers_on_ice, freeze_and_thaw);
}

/// Machines whose class is there, and whose policies wait for less than a second between two steps.
fn workers() -> Setting {
    let (mut machines, mut safeties) = (mcm::machines(json!({"podEvictionRetry": "1s"})), mcm::safeties());
    machines["spec"]["policies"]["retry"]["configuration"] =
        json!({"short": "200ms", "medium": "500ms", "long": "1s"});
    safeties["spec"]["policies"]["lifecycle"]["configuration"] =
        json!({"probePeriod": "1s", "probePeriodWhileDown": "200ms", "freezeAfter": "500ms"});
    let core = |kind: &str| reference("v1", kind, None, "").kind;
    Setting {
        bindings: vec![machines, safeties],
        objects: vec![mcm::user_data("#cloud-config\nruncmd: []"), mcm::class()],
        overrides: json!({}),
        mortals: vec![core("Node"), core("Pod"), machine_kind()],
        ..Setting::default()
    }
}

/// Those, and an API server that nobody reaches, until nothing goes wrong any more.
fn workers_on_ice() -> Setting {
    let away = json!({"answers": false, "message": "the API server does not answer"});
    Setting {
        overrides: json!({"faults": [{"operation": "reachable", "then": {"answerWith": away}}]}),
        ..workers()
    }
}

/// Those of a namespace of its own. With it their class goes at once, and nobody is left to bring that back.
fn workers_of_a_team() -> Setting {
    let mut setting = workers();
    setting.bindings[0]["spec"]["policies"]["lifecycle"]["configuration"]["deleteWithoutClass"] = json!(true);
    setting.objects.iter_mut().for_each(of_the_team);
    setting.objects.push(team());
    setting.mortals.push(named(&team()).kind);
    setting
}

fn team() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
}

fn of_the_team(object: &mut Value) {
    object["metadata"]["namespace"] = json!("team");
}

fn machine_kind() -> Kind {
    reference(MCM, "Machine", None, "").kind
}

fn machine(name: &str) -> ObjectRef {
    named(&mcm::machine(name))
}

fn node(machine: &str) -> ObjectRef {
    reference("v1", "Node", None, &format!("node-{machine}"))
}

fn pod(name: &str) -> ObjectRef {
    reference("v1", "Pod", Some("default"), name)
}

/// What a person sees of a node. Of its conditions a real API server leaves out what is empty.
fn shown(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let conditions =
        conditions.map(|condition| json!([condition["type"], condition["status"], condition["reason"]]));
    json!([some(node, &NODE), conditions.collect::<Value>()])
}

fn phase(machine: &Value) -> &str {
    machine["status"]["currentStatus"]["phase"]
        .as_str()
        .unwrap_or_default()
}

/// Its node is there and healthy, and nothing is left to do.
fn rests(pass: &PassRecord) -> bool {
    took(pass, "MCM-R16") && matches!(pass.next, Some(Next::Settled(_)))
}

/// A pod of the workload on a node, as its kubelet has it.
async fn run(scene: &Scene, name: &str, node: &str, ready: bool) {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "web"}],
        },
    });
    scene.create(&object).await;
    say_ready(scene, name, ready).await;
}

async fn keep_in_sight(scene: &Scene, pod: &ObjectRef, finalizers: Value) {
    scene
        .edit(pod, None, json!({"metadata": {"finalizers": finalizers}}))
        .await;
}

async fn say_ready(scene: &Scene, name: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    scene
        .edit(&pod(name), Some("status"), json!({"status": status}))
        .await;
}

/// The workload needs two of its pods; waits until somebody has counted how many there are.
async fn budget(scene: &Scene, expected: i64, healthy: i64) -> ObjectRef {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    scene.create(&budget).await;
    let budget = named(&budget);
    scene
        .until(&budget, |budget| {
            let status = &budget["status"];
            status["observedGeneration"] == budget["metadata"]["generation"]
                && (&status["expectedPods"], &status["currentHealthy"]) == (&json!(expected), &json!(healthy))
        })
        .await;
    budget
}

async fn comes_up(scene: &Scene, name: &str) {
    scene.create(&mcm::machine(name)).await;
    scene
        .until(&machine(name), |machine| phase(machine) == "Running")
        .await;
    scene.until_last_pass(&machine(name), rests).await;
}

/// Waits until the machine, its node and this pod are gone, and makes sure that they went in the right order.
async fn until_gone_in_order(scene: &Scene, machine: &ObjectRef, node: &ObjectRef, pod: &ObjectRef) {
    let (pod, node) = (scene.until_gone(pod).await, scene.until_gone(node).await);
    let last = scene.until_gone(machine).await;
    assert!(
        pod < node && node < last,
        "the versions of their ends: {pod}, {node}, {last}"
    );
    scene.until_last_pass(machine, |pass| took(pass, "MCM-X40")).await;
    assert_eq!(scene.site.vms(), []);
}

/// The position of the first pass that took each of these edges.
fn order(passes: &[PassRecord], edges: &[&str]) -> Vec<Option<usize>> {
    let first = |edge: &&str| passes.iter().position(|pass| took(pass, edge));
    edges.iter().map(first).collect()
}

fn assert_in_order(passes: &[PassRecord], edges: &[&str]) {
    let order = order(passes, edges);
    assert!(
        order.iter().all(Option::is_some) && order.is_sorted(),
        "{edges:?} at {order:?}"
    );
}

async fn leaves_in_order(scene: &mut Scene) {
    let (m1, n1) = (machine("m-1"), node("m-1"));
    comes_up(scene, "m-1").await;
    scene.sees("the machine runs", some(&scene.get(&m1).await, &MACHINE));
    scene.sees("its node has joined", shown(&scene.get(&n1).await));
    let machines = format!("/apis/{MCM}/namespaces/default/machines");
    scene.sees_table("kubectl get machines", &machines).await;
    assert_in_order(
        &scene.passes_of(&m1),
        &["MCM-R10", "MCM-C06", "MCM-C10", "MCM-H05", "MCM-S07", "MCM-S08"],
    );

    run(scene, "web-1", &n1.name, true).await;
    run(scene, "web-2", "elsewhere", true).await;
    run(scene, "web-3", "elsewhere", false).await;
    keep_in_sight(scene, &pod("web-1"), json!([IN_SIGHT])).await;
    let web = budget(scene, 3, 2).await;
    let counts = [
        "status.expectedPods",
        "status.desiredHealthy",
        "status.currentHealthy",
        "status.disruptionsAllowed",
    ];
    scene.sees("the budget allows none", some(&scene.get(&web).await, &counts));

    scene.delete(&m1).await;
    let uid = scene.get(&pod("web-1")).await["metadata"]["uid"].clone();
    let uid = uid.as_str().expect("a uid").to_owned();
    // Again and again.
    let blocked = scene
        .until(&m1, |machine| {
            let times = machine["status"]["drain"]["refused"][&uid].as_u64();
            times >= Some(2) && condition(machine, "Drained") == json!(["False", "EvictionRefused"])
        })
        .await;
    scene.sees("its drain is blocked", some(&blocked, &MACHINE));
    scene.sees("its node is cordoned", shown(&scene.get(&n1).await));
    assert_eq!(
        scene.get(&pod("web-1")).await["metadata"]["deletionTimestamp"],
        Value::Null
    );
    assert_eq!(scene.site.vms().len(), 1);

    say_ready(scene, "web-3", true).await;
    let evicted = scene
        .until(&pod("web-1"), |pod| {
            pod["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    assert_eq!(
        condition(&evicted, "DisruptionTarget"),
        json!(["True", "EvictionByEvictionAPI"])
    );
    let left = scene.until(&m1, |machine| {
        condition(machine, "Drained") == json!(["False", "Evicting"])
    });
    let left = left.await;
    scene.sees("its pod is leaving", some(&left, &MACHINE));
    keep_in_sight(scene, &pod("web-1"), Value::Null).await;

    until_gone_in_order(scene, &m1, &n1, &pod("web-1")).await;
    assert_in_order(
        &scene.passes_of(&m1),
        &[
            "MCM-D05", "MCM-D14", "MCM-X17", "MCM-X13", "MCM-X20", "MCM-X30", "MCM-X40",
        ],
    );
    for name in ["web-2", "web-3"] {
        assert_eq!(
            scene.get(&pod(name)).await["metadata"]["deletionTimestamp"],
            Value::Null
        );
    }
}

async fn goes_with_its_namespace(scene: &mut Scene) {
    let mut object = mcm::machine("m-1");
    of_the_team(&mut object);
    let (m1, n1, team) = (named(&object), node("m-1"), named(&team()));
    scene.create(&object).await;
    scene.until_last_pass(&m1, rests).await;

    scene.delete(&team).await;
    // Nothing can be made in it any more, Events of its machine included.
    let going = scene.until(&m1, |machine| phase(machine) == "Terminating").await;
    scene.sees(
        "its machine goes",
        some(&going, &["metadata.finalizers", "status.currentStatus"]),
    );
    let (node, machine) = (scene.until_gone(&n1).await, scene.until_gone(&m1).await);
    let last = scene.until_gone(&team).await;
    assert!(
        node < machine && machine < last,
        "the versions of their ends: {node}, {machine}, {last}"
    );
    assert_eq!(scene.site.vms(), []);
}

async fn goes_by_force(scene: &mut Scene) {
    let (m1, n1) = (machine("m-1"), node("m-1"));
    comes_up(scene, "m-1").await;
    run(scene, "web-1", &n1.name, true).await;
    run(scene, "web-2", "elsewhere", true).await;
    let attached = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "disk"},
        "spec": {"attacher": "csi.test", "nodeName": n1.name, "source": {"persistentVolumeName": "disk"}},
    });
    scene.create(&attached).await;
    // As the kubelet's volume manager reports it.
    let volume = json!([{"name": "kubernetes.io/csi/csi.test^disk", "devicePath": ""}]);
    let status = json!({"status": {"volumesAttached": volume}});
    scene.edit(&n1, Some("status"), status).await;
    budget(scene, 2, 2).await;
    let refused = scene
        .site
        .cluster
        .write(&evict(&scene.get(&pod("web-1")).await))
        .await;
    let refused = refused.expect_err("the budget needs both");
    assert_eq!(
        (refused.code, refused.effect),
        (Code::ResourceExhausted, Effect::None),
        "{refused}"
    );

    scene
        .edit(
            &m1,
            None,
            json!({"metadata": {"labels": {"force-deletion": "true"}}}),
        )
        .await;
    scene.delete(&m1).await;
    until_gone_in_order(scene, &m1, &n1, &pod("web-1")).await;
    assert_eq!(scene.get(&named(&attached)).await, Value::Null);
    let passes = scene.passes_of(&m1);
    assert_in_order(
        &passes,
        &[
            "MCM-D05", "MCM-X12", "MCM-X13", "MCM-X16", "MCM-X20", "MCM-X30", "MCM-X40",
        ],
    );
    let left = scene.get(&pod("web-2")).await;
    assert_eq!(left["metadata"]["deletionTimestamp"], Value::Null);
    let changes: Vec<_> = passes.iter().flat_map(changes).collect();
    scene.sees("what was asked of the cloud", json!(changes));
}

fn evict(pod: &Value) -> Write {
    let pod = Object::new(pod.clone());
    Write::Act(Act::Evict(Eviction {
        object: pod.reference(),
        precondition: Precondition {
            uid: pod.uid().to_owned(),
            resource_version: None,
        },
        grace_period_seconds: None,
    }))
}

/// Writes the condition `Ready` of the node, as its kubelet does, or the controller that misses the kubelet.
async fn say_node_is(scene: &Scene, node: &ObjectRef, ready: &str) {
    let mut conditions = scene.get(node).await["status"]["conditions"].clone();
    for condition in conditions.as_array_mut().expect("conditions") {
        if condition["type"] == "Ready" {
            condition["status"] = json!(ready);
        }
    }
    scene
        .edit(
            node,
            Some("status"),
            json!({"status": {"conditions": conditions}}),
        )
        .await;
}

async fn freeze_and_thaw(scene: &mut Scene) {
    let safety = named(&mcm::safety());
    let (m1, m2, m3) = (machine("m-1"), machine("m-2"), machine("m-3"));
    comes_up(scene, "m-1").await;
    comes_up(scene, "m-3").await;
    say_node_is(scene, &node("m-1"), "Unknown").await;
    scene.until(&m1, |machine| phase(machine) == "Unknown").await;

    scene.create(&mcm::safety()).await;
    let frozen = scene
        .until(&safety, |safety| safety["status"]["frozen"] == true)
        .await;
    scene.sees("it is frozen", some(&frozen, &["spec", "status"]));
    let left_alone = |pass: &PassRecord| took(pass, "MCM-R25x");
    scene.until_last_pass(&m1, left_alone).await;
    scene.create(&mcm::machine("m-2")).await;
    scene.until_last_pass(&m2, left_alone).await;
    assert!(scene.passes_of(&m2).iter().all(|pass| calls(pass).is_empty()));
    scene.sees("a new machine waits", some(&scene.get(&m2).await, &MACHINE));
    say_node_is(scene, &node("m-1"), "True").await;
    let looked = scene.passes_of(&m1).len();
    let look = json!({"metadata": {"annotations": {"request.polity.dev/look": "1"}}});
    scene.edit(&m1, None, look).await;
    scene.until_pass(&m1, looked, left_alone).await;
    assert_eq!(phase(&scene.get(&m1).await), "Unknown", "whatever its node says");

    // What is to go goes.
    scene.delete(&m3).await;
    scene.until_gone(&m3).await;
    assert_eq!(scene.site.vms().len(), 1);

    scene.site.calm();
    let thawed = scene
        .until(&safety, |safety| safety["status"]["frozen"] == false)
        .await;
    scene.sees("it is thawed", some(&thawed, &["spec", "status"]));
    scene.until(&m1, |machine| phase(machine) == "Running").await;
    scene.until(&m2, |machine| phase(machine) == "Running").await;
    for machine in [&m1, &m2] {
        scene.until_last_pass(machine, rests).await;
        let turn = format!("{} goes on", machine.name);
        scene.sees(&turn, some(&scene.get(machine).await, &MACHINE));
    }
    assert_in_order(&scene.passes_of(&m1), &["MCM-H04", "MCM-R25x", "MCM-R26x"]);
    assert_in_order(&scene.passes_of(&m2), &["MCM-R25x", "MCM-C06", "MCM-H05"]);
    assert_eq!(scene.site.vms().len(), 2);
}
