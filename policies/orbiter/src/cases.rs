//! The table of cases, edge by edge: an Orb, what is true of its machines and nodes, and what the policy does.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component. [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::Resolution;
use polity_sdk::contract::Request;
use polity_sdk::prelude::*;
use polity_sdk::test::{NOW, describe};
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words: Sized {
    /// A field of the status before the pass.
    fn known(self, field: &str, value: Value) -> Self;
    /// A machine with a node, or without.
    fn machine(self, machine: Value, node: Option<Value>) -> Self;
    /// A field of the status that the pass writes.
    fn writes(self, field: &str, value: Value) -> Self;
    /// The pass waits.
    fn waits(self, seconds: u64, reason: &str, message: &str) -> Self;
    /// The pass fails.
    fn failed(self, reason: &'static str, code: Code, message: &str) -> Self;
    fn concludes(self, phase: &str, reason: &str, message: &str) -> Self;
    /// Nothing is left to do.
    fn settles(self) -> Self;
}

impl Words for Case {
    fn known(self, field: &str, value: Value) -> Self {
        self.edited(|object| object["status"][field] = value)
    }

    fn machine(self, machine: Value, node: Option<Value>) -> Self {
        let annotations = node.as_ref().map(|node| node["metadata"]["annotations"].clone());
        let annotations = annotations.unwrap_or_default();
        let ready = node
            .as_ref()
            .is_some_and(|n| n["status"]["conditions"][0]["status"] == "True");
        let updating = annotations[ALLOWED] == "true";
        let said = json!({
            "pool": machine["pool"], "tier": machine["tier"], "joined": node.is_some(),
            "ready": ready && annotations[READY] == "true", "updating": updating,
            "rebooting": updating && !ready, "unknown": false,
        });
        let name = machine["name"].as_str().unwrap_or_default().to_owned();
        let mut all = self.answer_to(MACHINES).cloned().unwrap_or_default();
        all["machines"].as_array_mut().expect("a list").push(machine);
        let case = self
            .answers(MACHINES, all)
            .edited(|object| object["status"]["machines"][name] = said);
        match node {
            Some(node) => case.exists(node),
            None => case,
        }
    }

    fn writes(mut self, field: &str, value: Value) -> Self {
        self.patched()["status"][field] = value;
        self
    }

    fn waits(self, seconds: u64, reason: &str, message: &str) -> Self {
        self.concludes("maintaining", reason, message)
            .next(Next::After(seconds * 1000))
    }

    fn failed(self, reason: &'static str, code: Code, message: &str) -> Self {
        self.concludes("degraded", reason, message)
            .event(reason)
            .fails_with(RetryClass::Short, code, message)
    }

    fn concludes(self, phase: &str, reason: &str, message: &str) -> Self {
        let condition = json!([{
            "type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": NOW,
        }]);
        self.writes("phase", phase.into()).writes("conditions", condition)
    }

    fn settles(self) -> Self {
        self.next(Next::Settled(Some(30_000)))
    }
}

/// The usual answers, which few cases change.
fn usual(request: &Request) -> Option<Result<Value, Failure>> {
    let line = describe(request);
    let (operation, _) = line.split_once(' ')?;
    Some(Ok(match operation {
        "pool.list" => json!({"pools": [{"pool": "cp", "addresses": ["10.0.0.1"]}, {"pool": "w"}]}),
        "pool.add-machine" => cp(),
        "pool.ensure" | "revoke" => json!({}),
        "pool.remove-machine" | "agent.install" | "kubeadm.init" | "kubeadm.join" => {
            json!({"task": "task-1"})
        }
        "mint" => json!({"$secret": {"name": "token-1", "key": "token"}}),
        _ => return None,
    }))
}

// What the cases share: one Orb with a control plane and two workers, and the time of the pass.

/// Three minutes before the pass.
const EARLIER: &str = "2025-12-31T23:57:00Z";

const ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";
const READY: &str = "alpha.node.caos.ch/ready";

/// An Orb with this many wanted workers and without machines.
fn empty(workers: u32) -> Case {
    let orb = json!({
        "apiVersion": "orbiter.polity.dev/v1alpha1",
        "kind": "Orb",
        "metadata": {
            "name": "o", "uid": "uid-o", "resourceVersion": "5", "generation": 1,
            "finalizers": ["orbiter.polity.dev/orb"],
        },
        "spec": {
            "controlPlane": {"pool": "cp", "nodes": 1}, "workers": [{"pool": "w", "nodes": workers}],
            "versions": {"kubernetes": "1.30.2"},
        },
        "status": {
            "phase": "running", "pools": {"cp": ["10.0.0.1"], "w": []}, "initialized": "o-cp-0",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": EARLIER,
            }],
        },
    });
    Case::new("ORB-", orb)
        .manifest(crate::manifest())
        .config(json!({"kubernetesPackages": ["kubelet"]}))
        .creates("pool.add-machine", "o-w-1")
        .exists(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
        .usually(usual)
        .answers(MACHINES, json!({"machines": []}))
}

/// An Orb that is as it should be: a control plane and a worker.
fn running() -> Case {
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some(node("o-w-0")))
}

/// The same Orb while its worker is being changed.
fn changing(worker_node: Value) -> Case {
    let case = empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some(worker_node));
    case.known(
        "changing",
        json!({"node": "o-w-0", "uid": "uid-o-w-0", "since": EARLIER, "from": "1.30.2"}),
    )
    .known("cursor", 1.into())
}

/// Two of three control planes, whose packages have kubeadm among them. The first is to get another version.
fn applies(other: Value) -> Case {
    let mut first = node("o-cp-0");
    first["metadata"]["annotations"][ALLOWED] = "true".into();
    empty(0)
        .config(json!({"kubernetesPackages": ["kubeadm", "kubelet"]}))
        .machine(cp(), Some(first))
        .machine(machine("o-cp-1", "cp", "control-plane"), Some(other))
        .known(
            "changing",
            json!({"node": "o-cp-0", "uid": "uid-o-cp-0", "since": EARLIER, "from": "1.30.2"}),
        )
        .known("cursor", 0.into())
        .edited(|object| {
            object["spec"]["controlPlane"]["nodes"] = 3.into();
            object["spec"]["versions"]["kubernetes"] = "1.30.4".into();
        })
}

/// The write after which a node wants kubeadm and kubelet 1.30.4.
fn wants_kubeadm(node: &str, upgrade: &str) -> String {
    format!(
        concat!(
            r#"patch Node {} {{"metadata":{{"annotations":{{"alpha.kubeadm.caos.ch/desired-version":"1.30.4","#,
            r#""alpha.kubelet.caos.ch/desired-version":"1.30.4","alpha.node.caos.ch/upgrade":"{}"}}}}}}"#
        ),
        node, upgrade
    )
}

fn machine(name: &str, pool: &str, tier: &str) -> Value {
    json!({
        "id": format!("id-{name}"), "name": name, "pool": pool, "tier": tier, "nodeName": name,
        "providerID": format!("sim:///{name}"), "agent": "initialized",
    })
}

fn cp() -> Value {
    machine("o-cp-0", "cp", "control-plane")
}

fn worker(number: u32) -> Value {
    machine(&format!("o-w-{number}"), "w", "worker")
}

/// A machine whose agent is in this state.
fn agent(mut machine: Value, state: &str) -> Value {
    machine["agent"] = state.into();
    machine
}

/// A node that is as it should be.
fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "labels": {"orbiter.polity.dev/orb": "o"},
            "annotations": {
                READY: "true",
                "alpha.kubelet.caos.ch/desired-version": "1.30.2", "alpha.kubelet.caos.ch/current-version": "1.30.2",
            },
        },
        "spec": {"providerID": format!("sim:///{name}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// The node of a worker with this kubelet. The report of its agent was removed.
fn without_a_word(kubelet: &str) -> Value {
    let mut node = node("o-w-0");
    let annotations = &mut node["metadata"]["annotations"];
    annotations["alpha.kubelet.caos.ch/current-version"] = kubelet.into();
    annotations.as_object_mut().expect("annotations").remove(READY);
    node
}

/// A worker whose drain was refused once by a disruption budget.
fn blocked() -> Case {
    changing(cordoned(allowed("1.30.2", "1.30.2", "true")))
        .edited(|object| {
            object["spec"]["versions"]["kubernetes"] = "1.30.4".into();
            object["status"]["draining"] = json!({"uid": "uid-o-w-0", "drain": {"refused": {"uid-web": 1}}});
        })
        .exists(pod("o-w-0"))
        .exists(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 0, "expectedPods": 2, "desiredHealthy": 1},
        }))
        .writes("draining", json!({"drain": {"refused": {"uid-web": 2}}}))
}

/// A worker that is to be changed. One budget covers its pod, which is like this, and never allows a disruption.
fn kept(status: Value) -> Case {
    let mut kept = pod("o-w-0");
    kept["status"] = status;
    changing(cordoned(allowed("1.30.2", "1.30.2", "true")))
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .exists(kept)
        .exists(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            "status": {"disruptionsAllowed": 0, "expectedPods": 1, "desiredHealthy": 1},
        }))
        .acts(["evict web"])
        .notes("01 02 16 17 18")
        .writes("draining", json!({"uid": "uid-o-w-0", "drain": {}}))
}

/// The pod of [`kept`] goes all the same.
fn goes(status: Value) -> Case {
    kept(status).waits(5, "Draining", "node o-w-0: 1 pods are left")
}

/// The node of the worker: it may change, and it wants and has these versions of its kubelet.
fn allowed(desired: &str, current: &str, ready: &str) -> Value {
    let mut node = node("o-w-0");
    let annotations = &mut node["metadata"]["annotations"];
    annotations[ALLOWED] = "true".into();
    annotations[READY] = ready.into();
    annotations["alpha.kubelet.caos.ch/desired-version"] = desired.into();
    annotations["alpha.kubelet.caos.ch/current-version"] = current.into();
    node
}

/// A node that orbiter has cordoned.
fn cordoned(mut node: Value) -> Value {
    node["spec"]["unschedulable"] = true.into();
    node["spec"]["taints"] = json!([{"key": "orbiter.polity.dev/updating", "effect": "PreferNoSchedule"}]);
    node
}

fn pod(node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"}, "spec": {"nodeName": node},
    })
}

fn task(kind: &str, machine: &str) -> Value {
    json!({
        "id": "task-1", "kind": kind, "machine": machine, "node": machine,
        "providerID": format!("sim:///{machine}"), "since": NOW,
    })
}

/// A task that an earlier pass submitted.
fn earlier(kind: &str, machine: &str) -> Value {
    let mut task = task(kind, machine);
    task["since"] = EARLIER.into();
    task
}

fn with(mut task: Value, field: &str, value: Value) -> Value {
    task[field] = value;
    task
}

const MACHINES: &str = "pool.machines";
const ADD_WORKER: &str = r#"pool.add-machine {"name":"o-w-1","pool":"w","tier":"worker"}"#;
const CORDON: &str = concat!(
    r#"patch Node o-w-0 {"spec":{"taints":[{"effect":"PreferNoSchedule","key":"orbiter.polity.dev/updating"}],"#,
    r#""unschedulable":true}}"#
);
const MINT: &str = "mint bootstrap-token for 600000 ms";
const REVOKE: &str = r#"revoke {"$secret":{"name":"token-1","key":"token"}}"#;

polity_sdk::cases! { $ each_case of orbiter::cases;

orb_01_infrastructure_that_is_there_is_left_alone:
    running()
        .notes("01 02 13 14 15n 15n 28")
        .settles();

orb_01_infrastructure_that_is_missing_is_made_and_looked_at_again:
    running()
        .answers("pool.list", json!({"pools": [{"pool": "cp"}]}))
        .answers("pool.list {} (round 1)", json!({"pools": [{"pool": "cp", "addresses": ["10.0.0.1"]}, {"pool": "w"}]}))
        .acts([concat!(
            r#"pool.ensure {"pools":[{"pool":"cp","provider":"","tier":"control-plane"},"#,
            r#"{"pool":"w","provider":"","tier":"worker"}]}"#
        )])
        .notes("01 02 13 14 15n 15n 28")
        .settles();

orb_01_infrastructure_that_takes_longer_is_waited_for:
    running()
        .answers("pool.list", json!({"pools": []}))
        .acts([concat!(
            r#"pool.ensure {"pools":[{"pool":"cp","provider":"","tier":"control-plane"},"#,
            r#"{"pool":"w","provider":"","tier":"worker"}]}"#
        )])
        .notes("01")
        .waits(30, "EnsuringInfrastructure", "the pools are being made");

orb_01_infrastructure_that_cannot_be_asked_for_stops_the_pass:
    running()
        .fails("pool.list", Code::Unavailable)
        .failed("InfrastructureFailed", Code::Unavailable, "no");

orb_02_what_the_pools_answer_is_written_down:
    running()
        .known("pools", json!({}))
        .notes("01 02 13 14 15n 15n 28")
        .writes("pools", json!({"cp": ["10.0.0.1"], "w": []}))
        .settles();

orb_02_nodes_that_cannot_be_seen_are_not_missing:
    running()
        .edited(|object| object["spec"]["workers"][0]["nodes"] = 0.into())
        .fails("list Node", Code::Unavailable)
        .notes("01 02")
        .failed("NodesUnknown", Code::Unavailable, "no");

orb_03_missing_machines_are_added_together:
    empty(2)
        .edited(|object| object["status"]["initialized"] = Value::Null)
        .acts([
            r#"pool.add-machine {"name":"o-cp-0","pool":"cp","tier":"control-plane"}"#,
            r#"pool.add-machine {"name":"o-w-0","pool":"w","tier":"worker"}"#,
            ADD_WORKER,
        ])
        .notes("01 02 03 03 03")
        .waits(30, "AddingMachines", "3 machines are being added");

orb_03_the_lowest_free_number_is_taken:
    empty(2)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(2), Some(node("o-w-2")))
        .acts([r#"pool.add-machine {"name":"o-w-0","pool":"w","tier":"worker"}"#])
        .notes("01 02 03")
        .waits(30, "AddingMachines", "1 machines are being added");

orb_03_a_machine_that_is_to_be_replaced_does_not_count:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(with(worker(0), "replacementRequired", true.into()), Some(node("o-w-0")))
        .acts([ADD_WORKER])
        .notes("01 02 03")
        .waits(30, "AddingMachines", "1 machines are being added");

orb_03_a_machine_that_is_there_already_is_not_an_error:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .fails("pool.add-machine", Code::AlreadyExists)
        .acts([r#"pool.add-machine {"name":"o-w-0","pool":"w","tier":"worker"}"#])
        .notes("01 02")
        .waits(30, "AddingMachines", "1 machines are being added");

orb_03_a_quota_is_an_error:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .fails("pool.add-machine", Code::ResourceExhausted)
        .acts([r#"pool.add-machine {"name":"o-w-0","pool":"w","tier":"worker"}"#])
        .notes("01 02")
        .failed("AddFailed", Code::ResourceExhausted, "no");

orb_04_a_surplus_machine_without_a_node_is_removed:
    empty(0)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), None)
        .acts([r#"pool.remove-machine {"machine":"id-o-w-0"}"#])
        .notes("01 02 04")
        .writes("tasks", json!([task("remove", "o-w-0")]))
        .waits(30, "RemovingMachines", "machine o-w-0 is being removed");

orb_34_a_surplus_machine_with_a_node_is_drained_first:
    empty(0)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some(node("o-w-0")))
        .exists(pod("o-w-0"))
        .acts([CORDON, "evict web"])
        .notes("01 02 34")
        .writes("draining", json!({"uid": "uid-o-w-0", "drain": {}}))
        .waits(5, "Draining", "node o-w-0: 1 pods are left");

orb_04_the_last_control_plane_stays:
    running()
        .edited(|object| object["spec"]["controlPlane"]["pool"] = "new".into())
        .answers("pool.list", json!({"pools": [{"pool": "new"}, {"pool": "w"}]}))
        .answers("pool.machines", json!({"machines": [
            cp(), worker(0), agent(machine("o-new-0", "new", "control-plane"), "running"),
        ]}))
        .notes("01 02 08")
        .writes("pools", json!({"cp": null, "new": []}))
        .writes("machines", json!({"o-new-0": {
            "pool": "new", "tier": "control-plane", "joined": false, "ready": false, "updating": false,
            "rebooting": false, "unknown": false,
        }}))
        .waits(30, "WaitingForMachines", "not prepared yet: o-new-0");

orb_33_an_orb_that_is_being_deleted_removes_its_workers_first:
    running()
        .edited(|object| object["metadata"]["deletionTimestamp"] = EARLIER.into())
        .acts([r#"pool.remove-machine {"machine":"id-o-w-0"}"#])
        .notes("01 02 33")
        .writes("tasks", json!([task("remove", "o-w-0")]))
        .waits(30, "Destroying", "2 machines are left");

orb_05_a_machine_without_an_agent_gets_one:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(agent(worker(0), "absent"), None)
        .acts([r#"agent.install {"machine":"id-o-w-0","versions":{"kubelet":"1.30.2"}}"#])
        .notes("01 02 05")
        .writes("tasks", json!([task("install", "o-w-0")]))
        .waits(30, "InstallingAgents", "1 machines get their node agent");

orb_05_an_agent_of_another_release_is_replaced:
    running()
        .config(json!({"agentRelease": "2"}))
        .answers("pool.machines", json!({"machines": [with(cp(), "agentRelease", "2".into()), worker(0)]}))
        .acts([r#"agent.install {"machine":"id-o-w-0","versions":{"kubelet":"1.30.2"},"release":"2"}"#])
        .notes("01 02 05")
        .writes("tasks", json!([task("install", "o-w-0")]))
        .waits(30, "InstallingAgents", "1 machines get their node agent");

orb_08_one_machine_that_is_not_prepared_lets_all_wait:
    empty(2)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), None)
        .machine(agent(worker(1), "running"), None)
        .notes("01 02 08")
        .waits(30, "WaitingForMachines", "not prepared yet: o-w-1");

orb_09a_the_first_control_plane_makes_the_cluster:
    empty(1)
        .edited(|object| object["status"]["initialized"] = Value::Null)
        .machine(cp(), None)
        .machine(worker(0), None)
        .acts([concat!(
            r#"kubeadm.init {"machine":"id-o-cp-0","#,
            r#""labels":{"orbiter.polity.dev/orb":"o","orbiter.polity.dev/page":"0","orbiter.polity.dev/pool":"cp"}}"#
        )])
        .notes("01 02 09a")
        .writes("tasks", json!([task("init", "o-cp-0")]))
        .waits(30, "Joining", "becoming nodes: o-cp-0");

orb_09a_a_cluster_that_was_made_already_is_not_made_again:
    empty(1)
        .edited(|object| object["status"]["initialized"] = Value::Null)
        .machine(cp(), None)
        .machine(worker(0), None)
        .fails("kubeadm.init", Code::AlreadyExists)
        .acts([concat!(
            r#"kubeadm.init {"machine":"id-o-cp-0","#,
            r#""labels":{"orbiter.polity.dev/orb":"o","orbiter.polity.dev/page":"0","orbiter.polity.dev/pool":"cp"}}"#
        )])
        .notes("01 02")
        .writes("tasks", json!([with(with(task("init", "o-cp-0"), "id", "".into()), "done", NOW.into())]))
        .waits(30, "Joining", "becoming nodes: o-cp-0");

orb_09b_workers_join_together:
    empty(2)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), None)
        .machine(worker(1), None)
        .edited(|object| object["spec"]["workers"][0]["taints"] = json!([{"key": "gpu", "effect": "NoSchedule"}]))
        .acts([
            MINT,
            MINT,
            concat!(
                r#"kubeadm.join {"machine":"id-o-w-0","labels":{"orbiter.polity.dev/orb":"o","orbiter.polity.dev/page":"0","orbiter.polity.dev/pool":"w"},"#,
                r#""taints":[{"key":"gpu","effect":"NoSchedule"}],"role":"worker","#,
                r#""token":{"$secret":{"name":"token-1","key":"token"}}}"#
            ),
            concat!(
                r#"kubeadm.join {"machine":"id-o-w-1","labels":{"orbiter.polity.dev/orb":"o","orbiter.polity.dev/page":"0","orbiter.polity.dev/pool":"w"},"#,
                r#""taints":[{"key":"gpu","effect":"NoSchedule"}],"role":"worker","#,
                r#""token":{"$secret":{"name":"token-1","key":"token"}}}"#
            ),
        ])
        .notes("01 02 09b 09b")
        .writes("tasks", json!([
            with(task("join", "o-w-0"), "token", json!({"name": "token-1", "key": "token"})),
            with(task("join", "o-w-1"), "token", json!({"name": "token-1", "key": "token"})),
        ]))
        .waits(30, "Joining", "becoming nodes: o-w-0, o-w-1");

orb_09b_a_control_plane_joins_alone_and_with_a_key_for_its_certificates:
    empty(1)
        .edited(|object| object["spec"]["controlPlane"]["nodes"] = 3.into())
        .machine(cp(), Some(node("o-cp-0")))
        .machine(machine("o-cp-1", "cp", "control-plane"), None)
        .machine(machine("o-cp-2", "cp", "control-plane"), None)
        .machine(worker(0), None)
        .acts([
            MINT,
            "mint password for 600000 ms",
            concat!(
                r#"kubeadm.join {"machine":"id-o-cp-1","#,
                r#""labels":{"orbiter.polity.dev/orb":"o","orbiter.polity.dev/page":"0","orbiter.polity.dev/pool":"cp"},"#,
                r#""role":"control-plane","token":{"$secret":{"name":"token-1","key":"token"}},"#,
                r#""certificateKey":{"$secret":{"name":"token-1","key":"token"}}}"#
            ),
        ])
        .notes("01 02 09b")
        .writes("tasks", json!([with(task("join", "o-cp-1"), "token", json!({"name": "token-1", "key": "token"}))]))
        .waits(30, "Joining", "becoming nodes: o-cp-1");

orb_13_a_node_whose_agent_has_said_nothing_is_waited_for:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some({
            let mut node = node("o-w-0");
            node["metadata"]["annotations"] = json!({});
            node
        }))
        .notes("01 02 13 14 15n")
        .waits(30, "WaitingForNodeAgent", "the agent of node o-w-0 has not reported anything yet");

orb_13_a_word_that_somebody_takes_away_is_waited_for:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some(without_a_word("1.30.2")))
        .notes("01 02 13 14 15n")
        .waits(30, "WaitingForNodeAgent", "the agent of node o-w-0 has not reported anything yet");

orb_13_and_does_not_hide_another_version:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some(without_a_word("1.30.1")))
        .notes("01 02 13 14 15n")
        .writes("changing", json!({"node": "o-w-0", "uid": "uid-o-w-0", "since": NOW, "from": "1.30.1"}))
        .writes("cursor", 1.into())
        .waits(1, "Updating", "node o-w-0 is changed next");

orb_14_the_first_node_that_is_due_is_written_down_first:
    running()
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .notes("01 02 13 14")
        .writes("changing", json!({"node": "o-cp-0", "uid": "uid-o-cp-0", "since": NOW, "from": "1.30.2"}))
        .writes("cursor", 0.into())
        .waits(1, "Updating", "node o-cp-0 is changed next");

orb_14_a_node_that_is_found_changing_is_gone_on_with_first:
    empty(1)
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some(allowed("1.30.2", "1.30.2", "true")))
        .notes("01 02")
        .writes("changing", json!({"node": "o-w-0", "uid": "uid-o-w-0", "since": NOW, "from": "1.30.2"}))
        .writes("cursor", 1.into())
        .waits(1, "Updating", "node o-w-0 has the annotation changes-allowed already");

orb_15_the_node_that_is_written_down_may_change:
    changing(node("o-w-0"))
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .acts([r#"patch Node o-w-0 {"metadata":{"annotations":{"alpha.node.caos.ch/changes-allowed":"true"}}}"#])
        .notes("01 02 13 14 15")
        .waits(1, "Updating", "node o-w-0 may change");

orb_15_a_conflict_is_tried_again_at_once:
    changing(node("o-w-0"))
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .fails("patch Node o-w-0", Code::Aborted)
        .acts([r#"patch Node o-w-0 {"metadata":{"annotations":{"alpha.node.caos.ch/changes-allowed":"true"}}}"#])
        .notes("01 02 13 14")
        .waits(1, "UpdateFailed", "no")
        .fails_with(RetryClass::Conflict, Code::Aborted, "no");

orb_37_a_pool_that_is_left_alone_is_done:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some({
            let mut node = node("o-w-0");
            node["metadata"]["annotations"]["alpha.kubelet.caos.ch/desired-version"] = "1.30.1".into();
            node
        }))
        .edited(|object| object["spec"]["workers"][0]["updatesDisabled"] = true.into())
        .notes("01 02 13 14 15n 37 28")
        .settles();

orb_16_17_18_a_node_that_does_not_want_what_it_needs_is_drained:
    changing(allowed("1.30.2", "1.30.2", "true"))
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .exists(pod("o-w-0"))
        .acts([CORDON, "evict web"])
        .notes("01 02 16 17 18")
        .writes("draining", json!({"uid": "uid-o-w-0", "drain": {}}))
        .waits(5, "Draining", "node o-w-0: 1 pods are left");

orb_18_a_budget_that_refuses_is_waited_for:
    changing(cordoned(allowed("1.30.2", "1.30.2", "true")))
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .exists(pod("o-w-0"))
        .exists(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 0, "expectedPods": 2, "desiredHealthy": 1},
        }))
        .acts(["evict web"])
        .notes("01 02 16 17 18")
        .writes("draining", json!({"uid": "uid-o-w-0", "drain": {"refused": {"uid-web": 1}}}))
        .waits(5, "DrainRefused", "node o-w-0: 1 pods are left: the disruption budget web does not allow it");

orb_18_a_pod_that_is_not_ready_goes_where_its_budget_says_so:
    goes(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}));

orb_18_a_pod_that_has_not_begun_goes_whatever_its_budget:
    goes(json!({"phase": "Pending"}));

orb_18_so_does_one_that_has_succeeded:
    goes(json!({"phase": "Succeeded"}));

orb_18_so_does_one_that_has_failed:
    goes(json!({"phase": "Failed"}));

orb_18_a_budget_that_never_allows_is_said_once_it_has_refused:
    kept(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}))
        .failed("DrainFailed", Code::FailedPrecondition,
            "pod shop/web cannot be evicted: the disruption budget web never allows it");

orb_18_while_a_drain_is_blocked_machines_are_added:
    blocked()
        .edited(|object| object["spec"]["workers"][0]["nodes"] = 2.into())
        .acts(["evict web", r#"pool.add-machine {"name":"o-w-1","pool":"w","tier":"worker"}"#])
        .notes("01 02 16 17 18 03")
        .waits(5, "DrainRefused",
            "node o-w-0: 1 pods are left: the disruption budget web does not allow it; 1 machines are being added");

orb_18_while_a_drain_is_blocked_machines_get_their_agents_and_join:
    blocked()
        .edited(|object| object["spec"]["workers"][0]["nodes"] = 2.into())
        .machine(worker(1), None)
        .acts(["evict web", "mint bootstrap-token for 600000 ms", concat!(
            r#"kubeadm.join {"machine":"id-o-w-1","labels":{"orbiter.polity.dev/orb":"o","#,
            r#""orbiter.polity.dev/page":"0","orbiter.polity.dev/pool":"w"},"role":"worker","#,
            r#""token":{"$secret":{"name":"token-1","key":"token"}}}"#
        )])
        .notes("01 02 16 17 18 09b")
        .writes("tasks", json!([{
            "id": "task-1", "kind": "join", "machine": "o-w-1", "node": "o-w-1", "providerID": "sim:///o-w-1",
            "since": NOW, "token": {"name": "token-1", "key": "token"},
        }]))
        .waits(5, "DrainRefused",
            "node o-w-0: 1 pods are left: the disruption budget web does not allow it; becoming nodes: o-w-1");

orb_18_while_a_drain_is_blocked_no_machine_leaves:
    blocked()
        .machine(worker(1), Some(node("o-w-1")))
        .acts(["evict web"])
        .notes("01 02 16 17 18")
        .waits(5, "DrainRefused", "node o-w-0: 1 pods are left: the disruption budget web does not allow it");

orb_35_the_only_node_is_cordoned_and_its_pods_stay:
    empty(0)
        .machine(cp(), Some({
            let mut node = node("o-cp-0");
            node["metadata"]["annotations"][ALLOWED] = "true".into();
            node
        }))
        .known("changing", json!({"node": "o-cp-0", "uid": "uid-o-cp-0", "since": EARLIER, "from": "1.30.2"}))
        .known("cursor", 0.into())
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .exists(pod("o-cp-0"))
        .acts([
            &CORDON.replace("o-w-0", "o-cp-0"),
            r#"patch Node o-cp-0 {"metadata":{"annotations":{"alpha.kubelet.caos.ch/desired-version":"1.30.4"}}}"#,
        ])
        .notes("01 02 16 17 35 19")
        .waits(30, "Updating", "node o-cp-0 gets the annotations with its wanted versions");

orb_36_the_binding_may_leave_control_planes_as_they_are:
    empty(0)
        .config(json!({"drainControlPlane": false}))
        .machine(cp(), Some({
            let mut node = node("o-cp-0");
            node["metadata"]["annotations"][ALLOWED] = "true".into();
            node
        }))
        .known("changing", json!({"node": "o-cp-0", "uid": "uid-o-cp-0", "since": EARLIER, "from": "1.30.2"}))
        .known("cursor", 0.into())
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .acts([
            r#"patch Node o-cp-0 {"metadata":{"annotations":{"alpha.kubelet.caos.ch/desired-version":"1.30.4"}}}"#,
        ])
        .notes("01 02 16 17 36 19")
        .waits(30, "Updating", "node o-cp-0 gets the annotations with its wanted versions");

orb_19_an_empty_node_is_told_what_it_needs_in_one_write:
    changing(cordoned(allowed("1.30.2", "1.30.2", "true")))
        .edited(|object| object["spec"]["versions"] = json!({"kubernetes": "1.30.4", "containerd": "1.7.2"}))
        .known("draining", json!({"uid": "uid-o-w-0"}))
        .acts([concat!(
            r#"patch Node o-w-0 {"metadata":{"annotations":{"alpha.containerd.caos.ch/desired-version":"1.7.2","#,
            r#""alpha.kubelet.caos.ch/desired-version":"1.30.4"}}}"#
        )])
        .notes("01 02 16 17 18 19")
        .writes("draining", Value::Null)
        .waits(30, "Updating", "node o-w-0 gets the annotations with its wanted versions");

orb_19_the_first_control_plane_applies_the_upgrade:
    applies(node("o-cp-1"))
        .acts([
            &CORDON.replace("o-w-0", "o-cp-0"),
            &wants_kubeadm("o-cp-0", "apply"),
        ])
        .notes("01 02 16 17 18 19")
        .waits(30, "Updating", "node o-cp-0 gets the annotations with its wanted versions");

orb_19_a_control_plane_after_another_one_only_follows:
    applies({
            let mut node = node("o-cp-1");
            node["metadata"]["annotations"]["alpha.kubelet.caos.ch/current-version"] = "1.30.4".into();
            node
        })
        .acts([
            &CORDON.replace("o-w-0", "o-cp-0"),
            &wants_kubeadm("o-cp-0", "node"),
        ])
        .notes("01 02 16 17 18 19")
        .waits(30, "Updating", "node o-cp-0 gets the annotations with its wanted versions");

orb_19_a_worker_never_applies_the_upgrade:
    changing(cordoned(allowed("1.30.2", "1.30.2", "true")))
        .config(json!({"kubernetesPackages": ["kubeadm", "kubelet"]}))
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .known("draining", json!({"uid": "uid-o-w-0"}))
        .acts([&wants_kubeadm("o-w-0", "node")])
        .notes("01 02 16 17 18 19")
        .writes("draining", Value::Null)
        .waits(30, "Updating", "node o-w-0 gets the annotations with its wanted versions");

orb_19_without_kubeadm_nothing_is_upgraded:
    changing({
            let mut node = cordoned(allowed("1.30.2", "1.30.2", "true"));
            node["metadata"]["annotations"]["alpha.node.caos.ch/upgrade"] = "node".into();
            node
        })
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .known("draining", json!({"uid": "uid-o-w-0"}))
        .acts([concat!(
            r#"patch Node o-w-0 {"metadata":{"annotations":{"alpha.kubelet.caos.ch/desired-version":"1.30.4","#,
            r#""alpha.node.caos.ch/upgrade":null}}}"#
        )])
        .notes("01 02 16 17 18 19")
        .writes("draining", Value::Null)
        .waits(30, "Updating", "node o-w-0 gets the annotations with its wanted versions");

orb_22_23_a_node_that_is_done_is_uncordoned_and_may_not_change_any_more:
    changing(cordoned(allowed("1.30.2", "1.30.2", "true")))
        .acts([concat!(
            r#"patch Node o-w-0 {"metadata":{"annotations":{"alpha.node.caos.ch/changes-allowed":"false"}},"#,
            r#""spec":{"taints":[],"unschedulable":null}}"#
        )])
        .notes("01 02 16 17 22 23")
        .waits(1, "Updating", "node o-w-0 is done");

orb_23_a_node_that_somebody_else_has_cordoned_stays_cordoned:
    changing({
            let mut node = allowed("1.30.2", "1.30.2", "true");
            node["spec"]["unschedulable"] = true.into();
            node
        })
        .acts([r#"patch Node o-w-0 {"metadata":{"annotations":{"alpha.node.caos.ch/changes-allowed":"false"}}}"#])
        .notes("01 02 16 17 23")
        .waits(1, "Updating", "node o-w-0 is done");

orb_24_a_node_whose_agent_is_at_work_is_waited_for:
    changing(cordoned(allowed("1.30.4", "1.30.2", "false")))
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.30.4".into())
        .edited(|object| object["status"]["machines"]["o-w-0"]["ready"] = false.into())
        .notes("01 02 16 17 24")
        .waits(30, "WaitingForNodeAgent", "node o-w-0 lacks its version of kubelet: see its condition PackagesEnsured");

orb_24_a_node_that_reboots_is_waited_for:
    changing({
            let mut node = cordoned(allowed("1.30.2", "1.30.2", "true"));
            node["status"]["conditions"][0]["status"] = "False".into();
            node
        })
        .notes("01 02 16 17 24")
        .waits(30, "NodeNotReady", "node o-w-0 is not ready while it is being changed");

orb_24_a_node_that_takes_too_long_makes_the_cluster_degraded:
    changing(cordoned(allowed("1.30.2", "1.30.2", "false")))
        .config(json!({"updateTimeout": "2m"}))
        .notes("01 02 16 17 24")
        .event("UpdateTimeout")
        .concludes("degraded", "UpdateTimeout", "the agent of node o-w-0 is not done yet, since 2025-12-31T23:57:00Z")
        .next(Next::After(30_000));

orb_27_a_node_that_may_not_change_any_more_is_done:
    changing(node("o-w-0"))
        .notes("01 02 13 14 27 13 14 15n 15n 28")
        .writes("changing", Value::Null)
        .writes("cursor", Value::Null)
        .settles();

orb_28_everything_is_as_it_should_be:
    running()
        .known("phase", "maintaining".into())
        .known("conditions", json!([{
            "type": "Ready", "status": "False", "reason": "Updating", "lastTransitionTime": EARLIER,
        }]))
        .notes("01 02 13 14 15n 15n 28")
        .writes("phase", "running".into())
        .writes("conditions", json!([{
            "type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": NOW,
        }]))
        .settles();

orb_29_a_machine_that_may_have_been_added_is_waited_for:
    empty(2)
        .in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
        .notes("29")
        .waits(30, "AddInDoubt", "machine o-w-1 may exist already: the cloud does not show yet whether it was added");

orb_29_a_machine_that_was_added_is_waited_for_until_the_list_shows_it:
    empty(2)
        .in_doubt(Resolution::Done(worker(1).to_string()))
        .notes("29")
        .waits(30, "AddInDoubt", "machine o-w-1 may exist already: the cloud does not show yet whether it was added");

orb_29_a_machine_that_was_not_added_is_added:
    empty(2)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), Some(node("o-w-0")))
        .in_doubt(Resolution::Absent)
        .acts([ADD_WORKER])
        .notes("01 02 03")
        .waits(30, "AddingMachines", "1 machines are being added");

orb_30_a_task_that_runs_is_waited_for:
    running()
        .known("tasks", json!([earlier("install", "o-w-0")]))
        .answers("task.get", json!({"id": "task-1", "state": "running"}))
        .notes("01 02 30")
        .waits(30, "InstallingAgents", "machine o-w-0 gets its node agent");

orb_30_a_machine_that_has_joined_is_waited_for_until_its_node_is_there:
    empty(1)
        .machine(cp(), Some(node("o-cp-0")))
        .machine(worker(0), None)
        .known("tasks", json!([with(earlier("join", "o-w-0"), "token", json!({"name": "token-1", "key": "token"}))]))
        .answers("task.get", json!({"id": "task-1", "state": "success"}))
        .acts([REVOKE])
        .notes("01 02 30")
        .writes("tasks", json!([with(earlier("join", "o-w-0"), "done", NOW.into())]))
        .waits(30, "Joining", "machine o-w-0 becomes a node");

orb_30_the_node_of_a_machine_that_is_gone_is_deleted:
    empty(0)
        .machine(cp(), Some(node("o-cp-0")))
        .exists(node("o-w-0"))
        .known("tasks", json!([earlier("remove", "o-w-0")]))
        .answers("task.get", json!({"id": "task-1", "state": "success"}))
        .acts(["delete Node o-w-0"])
        .notes("01 02 13 14 15n 28")
        .writes("tasks", Value::Null)
        .settles();

orb_31_a_task_that_failed_is_an_error:
    running()
        .known("tasks", json!([with(earlier("join", "o-w-0"), "token", json!({"name": "token-1", "key": "token"}))]))
        .answers("task.get", json!({
            "id": "task-1", "state": "error", "error": {"fault": "Timeout", "message": "no discovery"},
        }))
        .acts([REVOKE])
        .notes("01 02 31")
        .writes("tasks", Value::Null)
        .failed("TaskFailed", Code::FailedPrecondition, "machine o-w-0: Timeout: no discovery");

an_orb_that_is_being_deleted_and_has_no_machines_is_let_go:
    empty(1)
        .edited(|object| object["metadata"]["deletionTimestamp"] = EARLIER.into())
        .notes("01 02")
        .patch(json!({"metadata": {"finalizers": []}}));

a_node_without_a_machine_is_an_error_while_it_is_ready:
    running()
        .exists(node("o-w-9"))
        .notes("01 02")
        .failed("NodeWithoutMachine", Code::FailedPrecondition, "node o-w-9 is ready, but has no machine: delete the Node if its machine is gone");

a_downgrade_is_an_error:
    running()
        .edited(|object| object["spec"]["versions"]["kubernetes"] = "1.29.9".into())
        .notes("01 02")
        .failed(
            "DowngradeRefused",
            Code::FailedPrecondition,
            "1.29.9 is wanted, but a node has 1.30.2: a minor version never goes back",
        );
}
