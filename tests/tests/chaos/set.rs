//! Ten machines of a set on EC2. One create finds no capacity, nodes die, the host is killed: in the end there are ten machines,
//! each with one instance and its node.

use std::time::Duration;

use polity_core::call::Write;
use polity_core::contract::Kind;
use polity_core::object::Object;
use polity_tests::simulation::seed::Chance;
use serde_json::{Value, json};

use super::Stage as _;
use super::aws::Ec2;
use super::proxy::Fault;
use crate::ec2;
use crate::process::{LOOK_EVERY, Process, has_none_of};

/// As many as the example wants.
const MACHINES: usize = 10;

/// A host of the example, to whose first create EC2 says that it has no capacity.
async fn begin(stage: &Ec2) -> Process {
    stage.proxy().strike(Fault::NoCapacity);
    let mut replaced = stage.replaced();
    // A node may be away for two seconds in place of ten minutes.
    let impatient = "file: mcm_machine.wasm\n      configuration: {healthTimeout: 2s, timeoutCheck: 500ms}";
    replaced.push(("file: mcm_machine.wasm", impatient.to_owned()));
    let replaced: Vec<(&str, &str)> = replaced.iter().map(|(from, to)| (*from, to.as_str())).collect();
    Process::begin("aws-machineset", &replaced).await
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Waits until this machine is gone and there are ten others that run. Meanwhile new instances register their nodes.
async fn converge(stage: &Ec2, host: &mut Process, dead: &str) -> Vec<Value> {
    loop {
        let machines = host.objects(&Ec2::kind()).await;
        let are_well = machines.iter().all(|machine| {
            Ec2::is_ready(machine)
                && machine["metadata"]["deletionTimestamp"].is_null()
                && uid(machine) != dead
        });
        if machines.len() == MACHINES && are_well {
            assert_eq!(
                stage.count(),
                1 + MACHINES,
                "one instance for each machine, and somebody's"
            );
            return machines;
        }
        for machine in &machines {
            if machine["status"]["currentStatus"]["phase"] == "Pending" {
                ec2::register(host, machine).await;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The kubelet of a machine is not heard of any more.
async fn die(host: &Process, machine: &Value) {
    let name = machine["status"]["node"].as_str().expect("it has a node");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let write = Write::Patch {
        object: Object::new(node).reference(),
        subresource: Some("status".into()),
        precondition: None,
        patch: json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    };
    host.cluster.write(&write).await.expect("the node is there");
}

async fn assert_counted(host: &mut Process) {
    let nodes: Kind = ec2::kind("v1", "Node");
    host.until(&nodes, |nodes| nodes.len() == MACHINES).await;
    let sets = ec2::kind(ec2::MCM, "MachineSet");
    let counts = |sets: &[Value]| ["replicas", "readyReplicas"].map(|count| sets[0]["status"][count].clone());
    host.until(&sets, |sets| counts(sets) == [json!(MACHINES), json!(MACHINES)])
        .await;
}

#[tokio::test]
async fn a_set_on_ec2_has_its_machines_though_one_finds_no_capacity_and_a_node_dies() {
    let stage = match Ec2::start() {
        Ok(stage) => stage,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&stage).await;
    let machines = converge(&stage, &mut host, "").await;
    assert!(stage.proxy().struck().contains("RunInstances"));
    die(&host, &machines[3]).await;
    converge(&stage, &mut host, uid(&machines[3])).await;
    assert_counted(&mut host).await;
    let recorded = host.recorded();
    // The refusal was one: the machine was created again at once, and not after five minutes of doubt.
    assert!(recorded.contains("MCM-C07") && recorded.contains("resource-exhausted"));
    assert!(!recorded.contains("MCM-C16"), "nothing was in doubt");
    for edge in ["MCM-H08", "MCM-M04", "MCM-M05", "MCM-X20", "MCM-O01"] {
        assert!(recorded.contains(edge), "{edge}");
    }
    has_none_of(&recorded, &ec2::SECRETS);
}

#[tokio::test]
#[ignore = "it takes minutes: twenty kills, each at a moment by chance"]
async fn no_moment_is_bad_for_a_kill_of_a_set_on_ec2() {
    let stage = match Ec2::start() {
        Ok(stage) => stage,
        Err(skip) => return skip.print(),
    };
    let number = std::env::var("POLITY_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut chance = Chance::new(number.unwrap_or(20_261_127), 0);
    let mut host = begin(&stage).await;
    let mut dead = String::new();
    for nth in 0..20 {
        // First while the ten are created, then while one of them is noticed to be dead, replaced and drained.
        let moment = Duration::from_millis(chance.between(0, 4_000));
        // The moment of the kill is what the test is about.
        tokio::time::sleep(moment).await;
        eprintln!("kill {nth} after {moment:?}: {} instances", stage.count());
        host.kill().await;
        assert!(stage.count() <= 2 + MACHINES, "at most one is being replaced");
        let machines = converge(&stage, &mut host, &dead).await;
        let one = &machines[usize::try_from(chance.between(0, 9)).expect("a number")];
        stage.proxy().strike(Fault::Late);
        die(&host, one).await;
        dead = uid(one).to_owned();
    }
    converge(&stage, &mut host, &dead).await;
    assert_counted(&mut host).await;
    has_none_of(&host.recorded(), &ec2::SECRETS);
}
