//! The fixture of these scenarios: an Orb, a provider of machines, an agent for each node, and functions that show
//! their passes.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, WatchEvent, WatchParams};
use polity::clouds::Clouds;
use polity_core::contract::{Act, Next, Request};
use polity_core::record::PassRecord;
use polity_core::time::Boot;
use polity_sim::{Happened, PoolMachine, Simulated as _};
use polity_tests::host_fixture::{condition_of, reference};
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::orbiter::{self, ORBITER};
use polity_tests::host_harness::story::{Story, edges};
use polity_tests::host_harness::{self, Site};
use polity_tests::simulation::scenario::Rates;
use polity_tests::simulation::seed::Chance;
use polity_tests::simulation::store::merge;
use serde_json::{Value, json};

/// The annotations by which orbiter and the agents talk.
pub(crate) const ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";
pub(crate) const READY: &str = "alpha.node.caos.ch/ready";
pub(crate) const UPGRADE: &str = "alpha.node.caos.ch/upgrade";
pub(crate) const DESIRED: &str = "alpha.kubelet.caos.ch/desired-version";
pub(crate) const CURRENT: &str = "alpha.kubelet.caos.ch/current-version";

/// The version with which clusters begin, and the one that most of them are upgraded to.
pub(crate) const OLD: &str = "1.30.2";
pub(crate) const NEW: &str = "1.30.4";

/// An orbiter that changes its first node, which is empty, and goes on to the next.
pub(crate) const ONE_NODE: [&str; 4] = [
    "13 14 15 after 1 s",
    "16 17 18 19 after 30 s",
    "16 17 24 after 30 s",
    "16 17 22 23 after 1 s",
];
/// How that begins, and how it goes on to the next node.
pub(crate) const FIRST: &str = "13 14 after 1 s";
pub(crate) const FURTHER: &str = "13 14 27 13 14 15n after 1 s";
/// How it ends.
pub(crate) const LAST: &str = "13 14 27 13 14 15n 28 settled";
/// A pass of an Orb that is as it should be.
pub(crate) const FINE: &str = "13 14 15n 28 settled";

/// A connection on which nothing goes wrong.
pub(crate) const NO_FAULTS: Rates = Rates {
    lost_request: 0,
    lost_answer: 0,
    refused: 0,
    slow: 0,
    held: 0,
    crash: 0,
    watch_lag: 0,
};

/// Between two looks at what must always hold.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The story of an Orb, and what it broke.
pub(crate) struct Fixture {
    pub(crate) story: Story,
    broken: Arc<Mutex<BTreeSet<String>>>,
}

impl Deref for Fixture {
    type Target = Story;

    fn deref(&self) -> &Story {
        &self.story
    }
}

impl Drop for Fixture {
    /// Whatever a scenario is about, this held at every look.
    fn drop(&mut self) {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::thread::panicking() {
            assert!(broken.is_empty(), "{broken:#?}");
        }
    }
}

/// A provider that answers at once and hides nothing, so that the passes of a scenario are known one by one. What
/// `overrides` names is put in place of that.
pub(super) fn cloud(overrides: &Value) -> Value {
    let always = |time: &str| json!({"min": time, "max": time});
    let mut cloud = json!({
        "lag": "0ms", "answers": always("10ms"), "queue": always("0ms"),
        "machines": {"boot": always("20s"), "nodeName": "{name}"},
        "pools": {"install": always("20s"), "init": always("40s"), "join": always("40s"), "remove": always("20s")},
        "packages": {"takes": always("30s")},
    });
    merge(&mut cloud, overrides);
    cloud
}

/// Governs one Node by its agent.
pub(crate) fn agent(node: &str) -> Value {
    orbiter::agent(node, retry())
}

/// What failed is tried again after the same time, always.
pub(super) fn retry() -> Value {
    json!({"short": "10s"})
}

/// An Orb with one control plane and so many workers.
pub(crate) fn orb(workers: i32, kubernetes: &str) -> Value {
    json!({
        "apiVersion": ORBITER, "kind": "Orb", "metadata": {"name": "o"},
        "spec": {
            "controlPlane": {"provider": "static", "pool": "cp", "nodes": 1},
            "workers": [pool(workers)],
            "versions": {"kubernetes": kubernetes, "containerd": "1.7.1"},
        },
    })
}

fn pool(nodes: i32) -> Value {
    json!({"provider": "static", "pool": "w", "nodes": nodes})
}

/// The names of the machines of an Orb, and of their nodes.
pub(crate) fn names(workers: i32) -> Vec<String> {
    let workers = (0..workers).map(|number| format!("o-w-{number}"));
    std::iter::once("o-cp-0".to_owned()).chain(workers).collect()
}

impl Fixture {
    /// A host, kubelets, and agents for a control plane and so many workers; no Orb yet.
    pub(crate) async fn begin(
        on: &dyn Backend,
        overrides: Value,
        configuration: Value,
        workers: i32,
    ) -> Self {
        let orbs = orbiter::orbs(configuration, retry());
        let agents = names(workers).into_iter().map(|name| agent(&name));
        let bindings = agents.chain([orbs]).collect();
        let story = Story::begin(on, cloud(&overrides), bindings, &orb(workers, OLD)).await;
        let broken = watch(&story.site);
        story.site.play_kubelets();
        Fixture { story, broken }
    }

    /// The same, in which the Orb is as it should be.
    pub(crate) async fn running(
        on: &dyn Backend,
        overrides: Value,
        configuration: Value,
        workers: i32,
    ) -> Self {
        Fixture::running_at(OLD, on, overrides, configuration, workers).await
    }

    /// The same, with this version of Kubernetes.
    pub(crate) async fn running_at(
        kubernetes: &str,
        on: &dyn Backend,
        overrides: Value,
        configuration: Value,
        workers: i32,
    ) -> Self {
        let fixture = Fixture::begin(on, overrides, configuration, workers).await;
        fixture.create(&orb(workers, kubernetes)).await;
        fixture.until_fine().await;
        fixture
    }

    /// What was broken so far was the story's own doing.
    pub(crate) fn forgive(&self) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Waits until the Orb is as it should be.
    pub(crate) async fn until_fine(&self) -> Value {
        self.until("it is as it should be", |orb| reason(orb) == "Running")
            .await
    }

    /// Waits until the condition of the Orb has this reason.
    pub(crate) async fn until_reason(&self, wanted: &str) -> Value {
        let what = format!("the reason is {wanted}");
        self.until(&what, |orb| reason(orb) == wanted).await
    }

    /// Waits until the Orb and all agents have nothing left to do, from another pass of the Orb on.
    pub(crate) async fn settles_again(&self) {
        let done = self.passes().len();
        self.until_passes(|passes| passes.len() > done).await;
        self.until_fine().await;
        self.settles().await;
    }

    /// A person wants so many workers.
    pub(crate) async fn workers(&self, workers: i32) {
        self.edit(json!({"spec": {"workers": [pool(workers)]}})).await;
    }

    /// A person wants this version of Kubernetes.
    pub(crate) async fn version(&self, kubernetes: &str) {
        self.edit(json!({"spec": {"versions": {"kubernetes": kubernetes}}}))
            .await;
    }

    /// The agent of a node runs from now on, or again.
    pub(crate) async fn start_agent(&self, node: &str) {
        self.create(&agent(node)).await;
    }

    /// The agent of a node is no more.
    pub(crate) async fn kill_agent(&self, node: &str) {
        let name = format!("agent-{node}");
        let binding = reference("polity.dev/v1alpha1", "PolicyBinding", None, &name);
        self.site
            .delete(&binding, None)
            .await
            .expect("the binding is there");
    }

    /// A Node; null if there is none.
    pub(crate) async fn node(&self, name: &str) -> Value {
        let node = reference("v1", "Node", None, name);
        self.site.get(&node).await.unwrap_or_default()
    }

    /// Somebody writes annotations of a Node.
    pub(crate) async fn annotate(&self, name: &str, annotations: Value) {
        let node = reference("v1", "Node", None, name);
        let patch = json!({"metadata": {"annotations": annotations}});
        let patched = self.site.patch(&node, None, patch).await;
        patched.expect("the node is there");
    }

    /// An annotation of a Node.
    pub(crate) async fn annotation(&self, node: &str, name: &str) -> String {
        told_by(&self.node(node).await, name).to_owned()
    }

    /// The kubelet of each node, as its agent has measured it.
    pub(crate) async fn kubelets(&self) -> Vec<String> {
        let mut all = Vec::new();
        for machine in self.machines() {
            all.push(self.annotation(&machine.node, CURRENT).await);
        }
        all
    }

    /// Waits until a Node is like this.
    pub(crate) async fn until_node(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) {
        // Longer than anything here lasts.
        for _ in 0..4 * 3_600 {
            if is(&self.node(name).await) {
                return;
            }
            self.sleep(LOOK_EVERY).await;
        }
        panic!("{name}: {what}: not so: {:#}", self.node(name).await);
    }

    /// What the agent of a node says of itself.
    pub(crate) async fn said(&self, node: &str) -> String {
        let node = self.node(node).await;
        let condition = condition_of(&node, "PackagesEnsured")
            .cloned()
            .unwrap_or_default();
        condition["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the agent of a node says this of itself.
    pub(crate) async fn until_said(&self, node: &str, wanted: &str) {
        let says = |node: &Value| {
            condition_of(node, "PackagesEnsured").is_some_and(|condition| condition["reason"] == wanted)
        };
        self.until_node(node, wanted, says).await;
    }

    /// The nodes that are cordoned.
    pub(crate) async fn cordoned(&self) -> Vec<String> {
        let nodes = self.site.list("v1", "Node").await;
        let cordoned = nodes.iter().filter(|node| node["spec"]["unschedulable"] == true);
        cordoned.map(name_of).collect()
    }

    /// The machines of all pools, the oldest first.
    pub(crate) fn machines(&self) -> Vec<PoolMachine> {
        machines(&self.site.clouds)
    }

    /// The machine of this name.
    pub(crate) fn machine(&self, name: &str) -> PoolMachine {
        let mut machines = self.machines().into_iter();
        machines
            .find(|machine| machine.name == name)
            .expect("it is there")
    }

    /// The machines on which this was begun, in order.
    pub(crate) fn begun(&self, operation: &str) -> Vec<String> {
        let effects = self.site.effects().into_iter();
        let begun = effects.filter(|it| it.operation == operation && it.what == Happened::Submitted);
        begun.map(|effect| effect.intent).collect()
    }

    /// What orbiter did in passes after so many, in order: to nodes, to pods, and to the machines of pools.
    pub(crate) fn acts_on_nodes(&self, after: usize) -> Vec<String> {
        let passes = &self.passes()[after..];
        let roles = passes.iter().flat_map(|pass| &pass.roles);
        let entries = roles.flat_map(|role| &role.journal);
        let told = entries.filter_map(|entry| match &entry.request {
            Request::Act(act) if entry.answer.is_ok() => tell_act(act),
            _ => None,
        });
        told.collect()
    }

    /// A pod on a node.
    pub(crate) async fn pod(&self, name: &str, node: &str) {
        self.pod_of(name, name, node).await;
    }

    /// A pod of an application, on a node.
    pub(crate) async fn pod_of(&self, app: &str, name: &str, node: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "default", "name": name, "labels": {"app": app}},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "web", "image": "web"}],
            },
        });
        self.create(&pod).await;
        self.pod_is(name, "True").await;
    }

    /// Whether a pod is ready.
    pub(crate) async fn pod_is(&self, name: &str, ready: &str) {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
        self.pod_says(name, status).await;
    }

    /// What the status of a pod says.
    pub(crate) async fn pod_says(&self, name: &str, status: Value) {
        let pod = reference("v1", "Pod", Some("default"), name);
        let patched = self
            .site
            .patch(&pod, Some("status"), json!({"status": status}))
            .await;
        patched.expect("the pod is there");
    }

    /// Whether a pod is there.
    pub(crate) async fn has_pod(&self, name: &str) -> bool {
        let pod = reference("v1", "Pod", Some("default"), name);
        self.site.get(&pod).await.is_some()
    }

    /// Wants so many of the pods of this name to stay.
    pub(crate) async fn budget(&self, name: &str, min_available: u32) {
        self.budget_with(name, json!({"minAvailable": min_available}))
            .await;
    }

    /// Makes a disruption budget of the pods of this name.
    pub(crate) async fn budget_with(&self, name: &str, mut spec: Value) {
        spec["selector"] = json!({"matchLabels": {"app": name}});
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "default", "name": name}, "spec": spec,
        });
        self.create(&budget).await;
    }

    /// The host is killed as soon as a Node is like this: by what a pass has just done, and before that pass could
    /// publish anything, because its connection is slow. Another one starts.
    pub(crate) async fn crash_when_node(&mut self, name: &str, is: impl Fn(&Value) -> bool) {
        let slow = Rates {
            slow: 1_000,
            ..NO_FAULTS
        };
        self.host.wire.inject(Some((slow, Chance::new(1, 1))));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let nodes = kube::Api::<DynamicObject>::all_with(self.site.client(), &resource);
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let events = nodes.watch(&only, "0").await.expect("a watch");
        let mut events = std::pin::pin!(events);
        loop {
            let event = events.next().await.expect("it goes on").expect("an event");
            if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event
                && is(&serde_json::to_value(node).expect("a Node is JSON"))
            {
                break;
            }
        }
        self.story.host.kill();
        self.story.crash().await;
    }

    /// The passes of the Orb after so many, as [`tell_all`] tells them.
    pub(crate) fn told(&self, after: usize) -> Vec<String> {
        tell_all(&self.passes()[after..])
    }

    /// The passes of an agent of this host.
    pub(crate) fn agent_told(&self, node: &str, after: usize) -> Vec<String> {
        tell_all(&self.host.passes_of(node)[after..])
    }

    /// Which edges an agent of this host has taken, in order.
    pub(crate) fn agent_took(&self, node: &str, after: usize) -> String {
        let passes = &self.host.passes_of(node)[after..];
        let mut all: Vec<String> = passes
            .iter()
            .map(edges)
            .filter(|edges| !edges.is_empty())
            .collect();
        all.dedup();
        all.join(" ")
    }

    /// Lets time pass until so many seconds after the world began.
    pub(crate) async fn until_second(&self, second: u64) {
        let then = Boot(second * 1_000);
        self.sleep(then - self.site.clock.now().boot).await;
    }

    /// The nodes, and how many passes the agent of each had.
    pub(crate) fn agents(&self) -> Vec<(String, usize)> {
        let nodes = self.machines().into_iter().map(|machine| machine.node);
        nodes
            .map(|node| (node.clone(), self.agent_passes(&node)))
            .collect()
    }

    /// How many passes an agent of this host had.
    pub(crate) fn agent_passes(&self, node: &str) -> usize {
        self.host.passes_of(node).len()
    }
}

/// Why the Orb is as it is.
pub(crate) fn reason(orb: &Value) -> &str {
    let condition = condition_of(orb, "Ready");
    condition
        .and_then(|condition| condition["reason"].as_str())
        .unwrap_or_default()
}

/// What a Node's annotation says.
pub(crate) fn told_by<'a>(node: &'a Value, name: &str) -> &'a str {
    node["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

/// An act in few words; none of those that only prepare a machine, or make it a node.
fn tell_act(act: &Act) -> Option<String> {
    Some(match act {
        Act::Patch(act) => format!("patch {}", act.object.name),
        Act::Delete(act) => format!("delete {}", act.object.name),
        Act::Evict(act) => format!("evict {}", act.object.name),
        Act::Cloud(act) if act.operation.starts_with("pool.") => act.operation.clone(),
        _ => return None,
    })
}

/// Passes as [`tell`] tells them; of equal passes in a row only the first. An agent writes to its Node twice, metadata and
/// status. A pass that begins after the first write and meets the second has done nothing, and is repeated at once.
pub(super) fn tell_all(passes: &[PassRecord]) -> Vec<String> {
    let told = passes.iter().map(tell);
    let mut told: Vec<String> = told.filter(|pass| !pass.ends_with("Conflict")).collect();
    told.dedup();
    told
}

/// The edges that a pass took but for those of every pass, and what comes next: `16 17 24 after 30 s`.
fn tell(pass: &PassRecord) -> String {
    let all = edges(pass);
    let next = match &pass.next {
        Some(Next::Settled(_)) => "settled".to_owned(),
        Some(Next::After(millis)) => format!("after {} s", millis / 1_000),
        Some(Next::Retry { class, .. }) => format!("{class:?}"),
        None => format!("{:?}", pass.outcome),
    };
    let ids = all.split(' ').filter(|id| !["", "01", "02"].contains(id));
    let mut told: Vec<&str> = ids.chain([next.as_str()]).collect();
    // One node after the other is as it should be.
    told.dedup_by(|id, before| id == before && *id == "15n");
    told.join(" ")
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn machines(clouds: &Clouds) -> Vec<PoolMachine> {
    let clouds = clouds.all();
    let sim = clouds.iter().find_map(|cloud| cloud.simulation());
    sim.map(|sim| sim.inspect(|sim, now| sim.pool_machines(now)))
        .unwrap_or_default()
}

/// Looks again and again at what must always hold, and remembers when it did not.
pub(super) fn watch(site: &Site) -> Arc<Mutex<BTreeSet<String>>> {
    let (cluster, clouds, mut changes) = (site.cluster.clone(), site.clouds.clone(), site.changes());
    let broken = Arc::<Mutex<BTreeSet<String>>>::default();
    let found = broken.clone();
    tokio::spawn(async move {
        let mut nodes = Vec::new();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if changes.any() {
                nodes = host_harness::list(&cluster, "v1", "Node").await;
            }
            if let Some(broke) = touched(&nodes, &clouds) {
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(broke);
            }
        }
    });
    broken
}

/// What is wrong if more than one node may be changed, is changed, or is cordoned by orbiter.
fn touched(nodes: &[Value], clouds: &Clouds) -> Option<String> {
    let ours = |node: &&Value| {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let mut keys = taints.map(|taint| &taint["key"]);
        told_by(node, ALLOWED) == "true" || keys.any(|key| key == "orbiter.polity.dev/updating")
    };
    let mut touched: BTreeSet<String> = nodes.iter().filter(ours).map(name_of).collect();
    let changing = machines(clouds).into_iter();
    let changing = changing.filter(|machine| machine.initialized && machine.changing);
    touched.extend(changing.map(|machine| machine.node));
    (touched.len() > 1).then(|| format!("more than one node is touched: {touched:?}"))
}

#[test]
#[should_panic(expected = "more than one node is touched")]
fn a_second_node_that_may_be_changed_is_noticed() {
    let scenario = async |on: &dyn Backend| {
        let fixture = Fixture::running(on, json!({}), json!({}), 1).await;
        // Orbiter would take it back.
        fixture.host.kill();
        for node in names(1) {
            fixture.annotate(&node, json!({ALLOWED: "true"})).await;
        }
        fixture.sleep(2 * LOOK_EVERY).await;
    };
    crate::scenarios::on_a_paused_runtime(scenario, None);
}
