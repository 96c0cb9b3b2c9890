//! The fixture of these scenarios: a cloud of routers, a router in it, and functions that show its passes.

use polity_core::contract::Next;
use polity_core::record::PassRecord;
use polity_core::time::{Boot, millis};
use polity_sim::{Happened, PortView, RouterView, Sim, Simulated as _};
use polity_tests::host_fixture::condition_of;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::rug;
pub(crate) use polity_tests::host_harness::rug::{mac, port};
use polity_tests::host_harness::story::{Story, edges};
use polity_tests::simulation::store::merge;
use serde_json::{Value, json};

/// A poll of a router that is as it should be.
pub(crate) const FINE: [&str; 2] = ["02 at once", "11 settled"];
/// From the boot of a VM to its rest: it boots, answers, is told what to be, and is.
pub(crate) const COMES_UP: [&str; 6] = [
    "13 at once",
    "18 after 1 s",
    "04 at once",
    "17 at once",
    "after 1 s",
    "21 settled",
];

/// A cloud that answers at once and hides nothing, so that the passes of a scenario are known one by one. What
/// `overrides` names is put in place of that.
fn cloud(overrides: &Value) -> Value {
    let always = |time: &str| json!({"min": time, "max": time});
    let mut cloud = json!({
        "lag": "0ms", "answers": always("10ms"), "queue": always("0ms"), "tasks": {"push": always("1s")},
        "routers": {"build": always("2s"), "boot": always("3s"), "plug": always("2s"), "stop": always("3s")},
    });
    merge(&mut cloud, overrides);
    cloud
}

/// The router that the story is about.
pub(crate) fn router() -> Value {
    rug::router("r-1", &[1])
}

/// A host whose retry policy waits as long as the original does; no router yet.
pub(crate) async fn begin(on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    let mut binding = rug::binding(configuration);
    binding["spec"]["policies"]["retry"] =
        json!({"file": "mcm_retry.wasm", "configuration": {"short": "1s"}});
    Story::begin(on, cloud(&overrides), vec![binding], &router()).await
}

/// A router that was created just now.
pub(crate) async fn planted(on: &dyn Backend, overrides: Value) -> Story {
    let story = begin(on, overrides, json!({})).await;
    story.create(&router()).await;
    story
}

/// A router whose VM is alive and configured.
pub(crate) async fn active(on: &dyn Backend, overrides: Value) -> Story {
    let story = planted(on, overrides).await;
    until_active(&story).await;
    story
}

/// The same, so many seconds after the world began.
pub(crate) async fn active_at(on: &dyn Backend, overrides: Value, second: u64) -> Story {
    let story = active(on, overrides).await;
    until_second(&story, second).await;
    story
}

/// A router whose VM was given up just now, because nothing could be booted.
pub(crate) async fn given_up(on: &dyn Backend) -> Story {
    let fails = json!({"operation": "router.boot", "count": 5, "then": {"fail": {"code": "internal"}}});
    let story = planted(on, json!({"faults": [fails]})).await;
    story.until_is("status.neutronStatus", "ERROR").await;
    story
}

/// Waits until the VM is alive and configured, and the machine rests.
pub(crate) async fn until_active(story: &Story) -> Value {
    let rests = |router: &Value| {
        let status = &router["status"];
        let rests = status["machineState"] == "CALC_ACTION" && status["queue"] == json!([]);
        rests && status["neutronStatus"] == "ACTIVE"
    };
    story.until("it is active, and rests", rests).await
}

/// The same, from another pass of this edge on.
pub(crate) async fn active_again(story: &Story, done: usize, edge: &str) -> Value {
    let took = |passes: &[PassRecord]| passes[done..].iter().any(|pass| edges(pass) == edge);
    story.until_passes(took).await;
    until_active(story).await
}

/// Waits until the router is gone.
pub(crate) async fn until_gone(story: &Story) {
    story.until("it is gone", Value::is_null).await;
}

/// Lets time pass until so many seconds after the world began.
pub(crate) async fn until_second(story: &Story, second: u64) {
    let then = Boot(second * 1_000);
    story.sleep(then - story.site.clock.now().boot).await;
}

/// Somebody wants another flavor: an update that changes nothing else.
pub(crate) async fn update(story: &Story, flavor: &str) {
    story.edit(json!({"spec": {"flavor": flavor}})).await;
}

/// Somebody wants these ports.
pub(crate) async fn ports(story: &Story, numbers: &[u32]) {
    story.edit(json!({"spec": {"ports": rug::ports(numbers)}})).await;
}

/// Somebody asks for something by annotation: `read` or `rebuild`.
pub(crate) async fn request(story: &Story, what: &str, nonce: &str) {
    let name = format!("request.polity.dev/{what}");
    story
        .edit(json!({"metadata": {"annotations": {name: nonce}}}))
        .await;
}

/// Somebody asks for a VM that boots from another image.
pub(crate) async fn rebuild_from(story: &Story, image: &str, nonce: &str) {
    let annotations = json!({"rug.polity.dev/rebuild-image": image, "request.polity.dev/rebuild": nonce});
    story
        .edit(json!({"metadata": {"annotations": annotations}}))
        .await;
}

/// The passes of the router after so many, as [`tell`] tells them. What goes round is told once: a pass like the one
/// before, and two like the two before.
pub(crate) fn told(story: &Story, after: usize) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for pass in &story.passes()[after..] {
        told.push(tell(pass));
        for round in [1, 2] {
            let end = told.len();
            if end >= 2 * round && told[end - round..] == told[end - 2 * round..end - round] {
                told.truncate(end - round);
            }
        }
    }
    told
}

/// The edges that a pass took and what comes next: `18 after 1 s`.
pub(crate) fn tell(pass: &PassRecord) -> String {
    let next = match &pass.next {
        Some(Next::Settled(_)) => "settled".to_owned(),
        Some(Next::After(0)) => "at once".to_owned(),
        Some(Next::After(millis)) => format!("after {} s", millis / 1_000),
        Some(Next::Retry { .. }) => "retry".to_owned(),
        None => format!("{:?}", pass.outcome),
    };
    let edges = edges(pass);
    let said = [edges.as_str(), next.as_str()];
    let said = said.into_iter().filter(|text| !text.is_empty());
    said.collect::<Vec<_>>().join(" ")
}

/// How often an edge was taken so far.
pub(crate) fn times(story: &Story, edge: &str) -> usize {
    story.edges().iter().filter(|took| *took == edge).count()
}

/// Milliseconds between the beginnings of passes.
pub(crate) fn pauses(passes: &[PassRecord]) -> Vec<u64> {
    let pairs = passes.windows(2);
    pairs
        .map(|pair| millis(pair[1].started.boot - pair[0].started.boot))
        .collect()
}

/// What passes asked of the cloud, or did to it.
pub(crate) fn calls(passes: &[PassRecord]) -> Vec<String> {
    passes.iter().flat_map(polity_tests::passes::calls).collect()
}

/// How often the cloud was told to do this.
pub(crate) fn acts(story: &Story, operation: &str) -> usize {
    story.acts().iter().filter(|act| *act == operation).count()
}

/// How many VMs the cloud made.
pub(crate) fn made(story: &Story) -> usize {
    let effects = story.site.effects();
    let done = effects.iter().filter(|effect| effect.what == Happened::Done);
    done.filter(|effect| effect.operation == "router.boot").count()
}

/// Status, reason and message of a condition; null where there is none.
pub(crate) fn said(router: &Value, kind: &str) -> Value {
    let condition = condition_of(router, kind);
    condition.map_or(Value::Null, |it| {
        let message = it["message"].as_str().unwrap_or_default();
        json!([it["status"], it["reason"], message])
    })
}

/// Why the router is not ready, or that it is.
pub(crate) fn reason(router: &Value) -> String {
    let condition = condition_of(router, "Ready").cloned().unwrap_or_default();
    condition["reason"].as_str().unwrap_or_default().to_owned()
}

/// The VM of a router.
pub(crate) fn vm(story: &Story, name: &str) -> RouterView {
    let mut vms = look(story, Sim::routers).into_iter();
    vms.find(|vm| vm.name == name).expect("it is there")
}

/// The ports that routers have.
pub(crate) fn taken(story: &Story) -> Vec<PortView> {
    look(story, |sim, _| sim.router_ports())
}

fn look<T>(story: &Story, at: impl FnOnce(&mut Sim, u64) -> T) -> T {
    let clouds = story.site.clouds.all();
    let mut simulated = clouds.iter().filter_map(|cloud| cloud.simulation());
    simulated.next().expect("a simulated cloud").inspect(at)
}
