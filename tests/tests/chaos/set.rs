//! Ten machines of a set on EC2. One create finds no capacity, nodes die, EC2 shows new instances late while half of them are
//! deleted, the host is killed: in the end there are ten machines, each with one instance and its node.

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

/// A host of the example in front of an EC2 with this fault.
async fn begin(stage: &Ec2, fault: Fault) -> Process {
    stage.proxy().strike(fault);
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

/// Waits until these machines are gone and there are ten others that run. Meanwhile new instances register their nodes.
async fn converge(stage: &Ec2, host: &mut Process, dead: &[&str]) -> Vec<Value> {
    loop {
        let machines = host.objects(&Ec2::kind()).await;
        let are_well = machines.iter().all(|machine| {
            Ec2::is_ready(machine)
                && machine["metadata"]["deletionTimestamp"].is_null()
                && !dead.contains(&uid(machine))
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
    let mut host = begin(&stage, Fault::NoCapacity).await;
    let machines = converge(&stage, &mut host, &[]).await;
    assert!(stage.proxy().struck().contains("RunInstances"));
    die(&host, &machines[3]).await;
    converge(&stage, &mut host, &[uid(&machines[3])]).await;
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

/// How long EC2 does not show a new instance.
const UNSEEN: Duration = Duration::from_secs(8);

/// Waits until EC2 has launched an instance for each machine and each of them is recorded, and deletes every second one at
/// once: EC2 shows none of their instances yet.
async fn delete_half(host: &mut Process) -> Vec<String> {
    let are_recorded = |machines: &[Value]| {
        machines.len() == MACHINES
            && machines
                .iter()
                .all(|machine| machine["status"]["providerID"].is_string())
    };
    let machines = host.until(&Ec2::kind(), are_recorded).await;
    let half: Vec<&Value> = machines.iter().step_by(2).collect();
    for machine in &half {
        host.delete(&Ec2::kind(), machine).await;
    }
    half.into_iter().map(|machine| uid(machine).to_owned()).collect()
}

#[tokio::test]
async fn machines_that_are_deleted_before_ec2_shows_their_instances_leave_none() {
    let stage = match Ec2::start() {
        Ok(stage) => stage,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&stage, Fault::Unseen(UNSEEN)).await;
    let deleted = delete_half(&mut host).await;
    let dead: Vec<&str> = deleted.iter().map(String::as_str).collect();
    converge(&stage, &mut host, &dead).await;
    assert_counted(&mut host).await;
    assert_eq!(
        stage.checked(),
        1,
        "the source/destination check is off on every machine's instance; somebody's own has it"
    );
    let recorded = host.recorded();
    for edge in ["MCM-C21", "MCM-D29", "MCM-C18", "MCM-X20", "MCM-X40"] {
        assert!(recorded.contains(edge), "{edge}");
    }
    assert!(!recorded.contains("MCM-D22"), "nothing counted as gone");
    has_none_of(&recorded, &ec2::SECRETS);
}

#[tokio::test]
#[ignore = "it takes minutes: twenty kills, each at a moment by chance"]
async fn no_moment_is_bad_for_a_kill_while_ec2_does_not_show_new_instances() {
    let stage = match Ec2::start() {
        Ok(stage) => stage,
        Err(skip) => return skip.print(),
    };
    let number = std::env::var("POLITY_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut chance = Chance::new(number.unwrap_or(20_261_128), 0);
    let mut host = begin(&stage, Fault::Unseen(UNSEEN)).await;
    for nth in 0..20 {
        let deleted = delete_half(&mut host).await;
        let moment = Duration::from_millis(chance.between(0, 12_000));
        // The moment of the kill is what the test is about.
        tokio::time::sleep(moment).await;
        eprintln!("kill {nth} after {moment:?}: {} instances", stage.count());
        host.kill().await;
        let dead: Vec<&str> = deleted.iter().map(String::as_str).collect();
        converge(&stage, &mut host, &dead).await;
    }
    assert_counted(&mut host).await;
    has_none_of(&host.recorded(), &ec2::SECRETS);
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
    let mut host = begin(&stage, Fault::NoCapacity).await;
    let mut dead = String::new();
    for nth in 0..20 {
        // First while the ten are created, then while one of them is noticed to be dead, replaced and drained.
        let moment = Duration::from_millis(chance.between(0, 4_000));
        // The moment of the kill is what the test is about.
        tokio::time::sleep(moment).await;
        eprintln!("kill {nth} after {moment:?}: {} instances", stage.count());
        host.kill().await;
        assert!(stage.count() <= 2 + MACHINES, "at most one is being replaced");
        let machines = converge(&stage, &mut host, &[&dead]).await;
        let one = &machines[usize::try_from(chance.between(0, 9)).expect("a number")];
        stage.proxy().strike(Fault::Late);
        die(&host, one).await;
        dead = uid(one).to_owned();
    }
    converge(&stage, &mut host, &[&dead]).await;
    assert_counted(&mut host).await;
    has_none_of(&host.recorded(), &ec2::SECRETS);
}
