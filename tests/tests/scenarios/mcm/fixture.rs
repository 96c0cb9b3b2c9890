//! The fixture of these scenarios: a cloud, a cluster with a class, a machine with its node, and functions that show
//! its passes.

use std::time::Duration;

use polity_core::contract::{Next, RetryClass};
use polity_core::record::PassRecord;
use polity_core::time::{Boot, millis};
use polity_sim::Happened;
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::{Story, edges};
use polity_tests::simulation::store::merge;
use serde_json::{Value, json};

/// Where the phase of a machine stands.
pub(crate) const PHASE: &str = "status.currentStatus.phase";
/// The node of the machine that a story is about.
pub(crate) const NODE: &str = "node-m-1";
/// A pass of a machine that is as it should be.
pub(crate) const FINE: &str = "R13 H13 R15 S08 R16 settled";

/// A cloud that answers at once and hides nothing, so that the passes of a scenario are known one by one. What
/// `overrides` names is put in place of that.
fn cloud(overrides: &Value) -> Value {
    let ten = json!({"min": "10s", "max": "10s"});
    let mut cloud = json!({
        "lag": "0ms", "answers": {"min": "10ms", "max": "10ms"}, "machines": {"boot": ten, "join": ten},
    });
    merge(&mut cloud, overrides);
    cloud
}

/// The machine that the story is about. Its node is to have a label.
pub(crate) fn machine() -> Value {
    let mut machine = mcm::machine("m-1");
    machine["spec"]["nodeTemplate"] = json!({"metadata": {"labels": {"pool": "a"}}});
    machine
}

/// A host, a class with its Secret, and kubelets; no machine yet.
pub(crate) async fn begin(on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    begin_among(
        on,
        overrides,
        vec![mcm::safeties(), mcm::machines(configuration)],
        &machine(),
    )
    .await
}

/// The same with more bindings, about another object.
pub(crate) async fn begin_with(
    on: &dyn Backend,
    overrides: Value,
    more: Vec<Value>,
    object: &Value,
) -> Story {
    let bindings = [vec![mcm::safeties(), mcm::machines(json!({}))], more].concat();
    begin_among(on, overrides, bindings, object).await
}

/// A host with these bindings, a class with its Secret, and kubelets. The story is about this object.
pub(crate) async fn begin_among(
    on: &dyn Backend,
    overrides: Value,
    bindings: Vec<Value>,
    object: &Value,
) -> Story {
    let story = Story::begin(on, cloud(&overrides), bindings, object).await;
    story.create(&mcm::user_data("#cloud-config\nruncmd: []")).await;
    story.create(&mcm::class()).await;
    story.site.play_kubelets();
    story
}

/// A machine that was created just now.
pub(crate) async fn planted(on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    let story = begin(on, overrides, configuration).await;
    story.create(&machine()).await;
    story
}

/// A machine whose node is as it should be.
pub(crate) async fn running(on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    let story = planted(on, overrides, configuration).await;
    story.until_is(PHASE, "Running").await;
    until_fine(&story).await;
    story
}

/// Waits until the machine is as it should be.
pub(crate) async fn until_fine(story: &Story) {
    let fine = |passes: &[PassRecord]| passes.last().is_some_and(|last| tell(last) == FINE);
    story.until_passes(fine).await;
}

/// Another machine of the deployment, until it is running.
pub(crate) async fn another(story: &Story, name: &str) {
    story.create(&mcm::machine(name)).await;
    let running = |passes: &[String]| passes.last().is_some_and(|last| last == FINE);
    while !running(&told_of(story, name)) {
        story.sleep(Duration::from_secs(1)).await;
    }
}

/// Lets time pass until so many seconds after the world began.
pub(crate) async fn until_second(story: &Story, second: u64) {
    let then = Boot(second * 1_000);
    story.sleep(then - story.site.clock.now().boot).await;
}

/// Waits until the machine is gone.
pub(crate) async fn until_gone(story: &Story) {
    story.until("it is gone", Value::is_null).await;
}

/// The passes of the machine, as [`tell`] tells them.
pub(crate) fn told(story: &Story) -> Vec<String> {
    story.passes().iter().map(tell).collect()
}

/// The passes without those that are as the pass before.
pub(crate) fn once(mut told: Vec<String>) -> Vec<String> {
    told.dedup();
    told
}

/// Whether the cloud's id of its VM is recorded.
pub(crate) fn has_vm(machine: &Value) -> bool {
    machine["status"]["providerID"].is_string()
}

/// The passes of another machine.
pub(crate) fn told_of(story: &Story, name: &str) -> Vec<String> {
    story.host.passes_of(name).iter().map(tell).collect()
}

/// The edges that a pass took but for those of every pass of its flow, and what comes next: `R10 R12 Short`.
pub(crate) fn tell(pass: &PassRecord) -> String {
    const USUAL: [&str; 17] = [
        "R02", "R03", "R06", "R07", "R08", "R09", "R11", "R18", "R19", "R20", "R21", "R22", "R24x", "D01",
        "D04", "D08", "D11",
    ];
    let all = edges(pass);
    let next = match &pass.next {
        Some(Next::Settled(_)) => "settled".to_owned(),
        Some(Next::After(millis)) => format!("after {} s", millis / 1_000),
        Some(Next::Retry { class, .. }) => match class {
            RetryClass::Conflict => "Conflict",
            RetryClass::Short => "Short",
            RetryClass::Medium => "Medium",
            RetryClass::Long => "Long",
        }
        .to_owned(),
        None => format!("{:?}", pass.outcome),
    };
    let ids = all.split(' ').filter(|id| !USUAL.contains(id));
    ids.chain([next.as_str()]).collect::<Vec<_>>().join(" ")
}

/// Milliseconds between the beginnings of passes.
pub(crate) fn pauses(passes: &[PassRecord]) -> Vec<u64> {
    let begins = passes.windows(2);
    begins
        .map(|pair| millis(pair[1].started.boot - pair[0].started.boot))
        .collect()
}

/// How many machines the cloud made.
pub(crate) fn made(story: &Story) -> usize {
    let effects = story.site.effects();
    let done = effects.iter().filter(|effect| effect.what == Happened::Done);
    done.filter(|effect| effect.operation == "machine.create").count()
}

/// A MachineSet looks once: machines that were given up are deleted, and `wanted` of them are to be there.
pub(crate) async fn machine_set(story: &Story, wanted: usize) {
    let machines = story.site.list(mcm::MCM, "Machine").await;
    let mut there = 0;
    for machine in machines.iter() {
        let name = machine["metadata"]["name"].as_str().unwrap_or_default();
        if machine["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        if machine["status"]["currentStatus"]["phase"] == "Failed" {
            let machine = reference(mcm::MCM, "Machine", Some("default"), name);
            story.site.delete(&machine, None).await.expect("it is deleted");
        } else {
            there += 1;
        }
    }
    for _ in there..wanted {
        let taken = |number: &usize| {
            let name = format!("r-{number}");
            machines.iter().any(|m| m["metadata"]["name"] == *name)
        };
        let free = (1..).find(|number| !taken(number)).expect("a number");
        story.create(&mcm::machine(&format!("r-{free}"))).await;
    }
}

/// The node of the machine; null if there is none.
pub(crate) async fn node(story: &Story) -> Value {
    let node = reference("v1", "Node", None, NODE);
    story.site.get(&node).await.unwrap_or_default()
}

/// Somebody merges this into the machine's node.
pub(crate) async fn edit_node(story: &Story, patch: Value) {
    let node = reference("v1", "Node", None, NODE);
    let edited = story.site.patch(&node, None, patch).await;
    edited.expect("the node is there");
}
