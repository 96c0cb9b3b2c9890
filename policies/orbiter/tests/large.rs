//! A thousand nodes of a pool: no answer is longer than one may be, and what is decided is what a small fleet gets.

use polity_sdk::contract::{Question, Request};
use polity_sdk::test::{Ended, World, describe};
use serde_json::{Value, json};

const WORKERS: u32 = 1_000;
const ORB: &str = "orbiter.polity.dev/orb";
const POOL: &str = "orbiter.polity.dev/pool";
const PAGE: &str = "orbiter.polity.dev/page";
const DESIRED: &str = "alpha.kubelet.caos.ch/desired-version";

fn machine(pool: &str, tier: &str, number: u32) -> Value {
    let name = format!("o-{pool}-{number}");
    json!({
        "id": format!("id-{name}"), "name": name, "pool": pool, "tier": tier, "nodeName": name,
        "providerID": format!("cloud:///{name}"), "agent": "initialized",
    })
}

fn machines() -> Vec<Value> {
    let workers = (0..WORKERS).map(|number| machine("w", "worker", number));
    std::iter::once(machine("cp", "control-plane", 0))
        .chain(workers)
        .collect()
}

/// A Node as a kubelet and a few controllers write it: 4 KB.
fn node(machine: &Value) -> Value {
    let name = machine["name"].as_str().expect("a name");
    let number: u32 = name
        .rsplit('-')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": format!("KubeletHas{kind}"),
            "message": format!("the kubelet of this node has posted what it knows of its {kind} just now"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2025-12-01T00:00:00Z",
        })
    };
    let image = |n: u32| format!("registry.example.com/team/service-{n}@sha256:{n:064}");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "labels": {
                ORB: "o", POOL: machine["pool"], PAGE: (number / 200).to_string(),
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": "eu-central-1a",
            },
            "annotations": {
                "alpha.node.caos.ch/ready": "true", DESIRED: "1.30.2",
                "alpha.kubelet.caos.ch/current-version": "1.30.2",
                "alpha.kubeadm.caos.ch/desired-version": "1.30.2",
                "alpha.kubeadm.caos.ch/current-version": "1.30.2",
                "kubeadm.alpha.kubernetes.io/cri-socket": "unix:///var/run/containerd/containerd.sock",
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": format!("{{\"csi.example.com\":\"{name}\"}}"),
                "flannel.alpha.coreos.com/backend-data": r#"{"VNI":1,"VtepMAC":"5a:36:1f:20:cb:0d"}"#,
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/kube-subnet-manager": "true",
                "flannel.alpha.coreos.com/public-ip": "10.0.0.1",
            },
        },
        "spec": {"providerID": machine["providerID"], "podCIDR": "10.244.0.0/24"},
        "status": {
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("NetworkUnavailable", "False"),
                condition("Ready", "True"),
            ],
            "volumesAttached": (0..4)
                .map(|n| json!({"name": format!("kubernetes.io/csi/example.com^volume-{n}"), "devicePath": ""}))
                .collect::<Vec<_>>(),
            "images": (0..20).map(image).collect::<Vec<_>>(),
        },
    })
}

/// An Orb of a thousand workers that is as it should be.
fn world() -> World {
    let mut world = World::new(json!({
        "apiVersion": "orbiter.polity.dev/v1alpha1", "kind": "Orb",
        "metadata": {"name": "o", "uid": "uid-o", "generation": 1, "finalizers": ["orbiter.polity.dev/orb"]},
        "spec": {
            "controlPlane": {"pool": "cp", "nodes": 1}, "workers": [{"pool": "w", "nodes": WORKERS}],
            "versions": {"kubernetes": "1.30.2"},
        },
        "status": {"initialized": "o-cp-0"},
    }))
    .manifest(&orbiter::manifest());
    let machines = machines();
    for machine in &machines {
        world.exists(node(machine));
    }
    let all = json!({ "machines": machines }).to_string();
    world.responds(move |request| {
        let line = describe(request);
        Some(Ok(match line.split_once(' ')?.0 {
            "pool.list" => json!({"pools": [{"pool": "cp"}, {"pool": "w"}]}).to_string(),
            "pool.machines" => all.clone(),
            "pool.remove-machine" => json!({"task": "task-1"}).to_string(),
            _ => return None,
        }))
    });
    world
}

/// Every answer that was read of nodes, in bytes.
fn read(ended: &Ended) -> Vec<usize> {
    let of_nodes = ended.journal.iter().filter(|entry| match &entry.request {
        Request::Ask(ask) => matches!(&ask.question, Question::Objects(query) if query.kind == "Node"),
        Request::Act(_) => false,
    });
    let answers = of_nodes.map(|entry| entry.answer.as_ref().map_or(0, String::len));
    answers.collect()
}

#[test]
fn a_thousand_nodes_of_a_pool_are_read_in_answers_that_fit() {
    let mut world = world();
    let ended = world.pass(orbiter::reconcile);
    assert_eq!(
        ended.notes.last().map(String::as_str),
        Some("ORB-28"),
        "{}",
        ended.next
    );
    assert!(ended.notes.len() <= 256, "{} notes", ended.notes.len());
    let read = read(&ended);
    // All by name, six pages, and those without a page.
    assert_eq!(read.len(), 8);
    assert!(read.iter().all(|bytes| *bytes < 1 << 19), "{read:?}");
    assert!(ended.patch.expect("a patch").to_string().len() < 1 << 19);
}

#[test]
fn what_a_page_does_not_show_is_read_by_itself() {
    let mut world = world();
    let cluster = world.cluster().clone();
    // One label is removed, another names a wrong page, and another node is cordoned.
    cluster.edit("Node", "o-w-7", json!({"metadata": {"labels": {PAGE: null}}}));
    cluster.edit("Node", "o-w-8", json!({"metadata": {"labels": {PAGE: "99"}}}));
    cluster.edit(
        "Node",
        "o-w-9",
        json!({"spec": {"taints": [
            {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
        ]}}),
    );
    let mut foreign = node(&machine("theirs", "worker", 0));
    foreign["metadata"]["labels"] = json!({});
    world.exists(foreign);
    let ended = world.pass(orbiter::reconcile);
    assert_eq!(
        ended.notes.last().map(String::as_str),
        Some("ORB-28"),
        "{}",
        ended.next
    );
    let machines = &world.status()["machines"];
    for name in ["o-w-7", "o-w-8"] {
        assert_eq!(
            (&machines[name]["joined"], &machines[name]["ready"]),
            (&json!(true), &json!(true))
        );
    }
    assert_eq!(machines["o-w-9"]["unknown"], true);
}

#[test]
fn a_node_that_wants_something_is_found_among_a_thousand() {
    let mut world = world();
    world.cluster().edit(
        "Node",
        "o-w-999",
        json!({"metadata": {"annotations": {DESIRED: "1.30.1"}}}),
    );
    world.pass(orbiter::reconcile);
    assert_eq!(world.status()["changing"]["node"], "o-w-999");
}

#[test]
fn a_node_is_read_whole_before_it_is_drained() {
    let mut world = world();
    world.edit(json!({"spec": {"workers": [{"pool": "w", "nodes": WORKERS - 1}]}}));
    let ended = world.pass(orbiter::reconcile);
    let notes = &ended.notes[ended.notes.len() - 2..];
    assert_eq!(notes, ["ORB-34", "ORB-04"]);
    let whole = ended
        .requests()
        .concat()
        .iter()
        .any(|request| request == "Node o-w-999");
    assert!(whole, "{:?}", ended.requests());
}

#[test]
fn an_orphan_among_a_thousand_is_deleted_once_it_is_not_ready() {
    let mut world = world();
    let mut orphan = node(&machine("old", "worker", 5));
    orphan["status"]["conditions"][4]["status"] = "Unknown".into();
    world.exists(orphan);
    world.pass(orbiter::reconcile);
    assert!(world.cluster().get("Node", "o-old-5").is_none());
}
