//! Any process crashes, after any output: at most one node is changed at any time, no node is rebooted twice for one change,
//! no machine is added twice, and in the end everything is as it should be. The same holds if the answer to an output is
//! lost.
//!
//! Orbiter and the agent of each node are processes of their own here, so that one of them can crash alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_tests::host_harness::Host;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::orbiter;
use polity_tests::host_harness::outputs::Outputs;
use polity_tests::host_harness::story::Story;
use polity_tests::host_harness::wire::Wire;
use serde_json::{Value, json};

use super::fixture::*;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks at one turn: two hours.
const LOOKS: u32 = 7_200;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Orbiter,
    /// The agent of this node.
    Agent(&'static str),
}

/// What becomes of a process at an output.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// It crashes right after it.
    Crash,
    /// It never hears what came of it.
    Loss,
}

/// Who has a node, in the clusters of these stories.
const EVERYBODY: [Who; 3] = [Who::Orbiter, Who::Agent("o-cp-0"), Who::Agent("o-w-0")];

/// An Orb, and everybody who works on it.
struct Cluster {
    story: Story,
    agents: BTreeMap<String, Host>,
    /// The connections of all orbiters there were.
    wires: Vec<Wire>,
    broken: Arc<Mutex<BTreeSet<String>>>,
}

impl Cluster {
    /// Processes for a control plane and so many workers; no Orb yet.
    async fn begin(on: &dyn Backend, overrides: Value, workers: i32) -> Self {
        let orbs = orbiter::orbs(json!({}), retry());
        let story = Story::begin(on, cloud(&overrides), vec![orbs], &orb(workers, OLD)).await;
        story.site.play_kubelets();
        let agents = names(workers).into_iter();
        Cluster {
            agents: agents
                .map(|node| (node.clone(), story.site.start_agent(agent(&node))))
                .collect(),
            wires: vec![story.host.wire.clone()],
            broken: watch(&story.site),
            story,
        }
    }

    /// The same, in which the Orb is as it should be.
    async fn running(on: &dyn Backend, overrides: Value, workers: i32) -> Self {
        let mut cluster = Cluster::begin(on, overrides, workers).await;
        cluster.story.create(&orb(workers, OLD)).await;
        cluster.settles(workers, OLD).await;
        cluster
    }

    fn outputs(&self, who: Who) -> Outputs {
        match who {
            Who::Orbiter => self.story.host.wire.outputs().clone(),
            Who::Agent(node) => self.agents[node].wire.outputs().clone(),
        }
    }

    /// Starts the processes that have crashed again.
    async fn supervise(&mut self) {
        if self.story.supervise().await {
            self.wires.push(self.story.host.wire.clone());
        }
        for (node, host) in &mut self.agents {
            if host.has_ended() {
                *host = self.story.site.start_agent(agent(node));
            }
        }
    }

    /// Waits until this holds, and supervises meanwhile.
    async fn until(&mut self, what: &str, holds: impl AsyncFn(&Story) -> bool) {
        for _ in 0..LOOKS {
            self.supervise().await;
            if holds(&self.story).await {
                let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(broken.is_empty(), "{broken:#?}");
                return;
            }
            self.story.sleep(LOOK_EVERY).await;
        }
        let (orb, edges) = (self.story.object().await, self.story.edges());
        panic!("{what}: not so: {orb:#}, whose passes took {edges:?}");
    }

    /// Waits until the Orb and all nodes are as they should be.
    async fn settles(&mut self, workers: i32, kubernetes: &str) {
        let is_so = async |story: &Story| {
            reason(&story.object().await) == "Running" && all_are(story, workers, kubernetes).await
        };
        self.until("it is as it should be", is_so).await;
        // Somebody may crash at the very last output.
        self.story.sleep(Duration::from_secs(60)).await;
        self.until("it stays so", is_so).await;
    }

    /// How often a pod was evicted.
    fn evictions(&self, pod: &str) -> usize {
        let eviction = format!("POST /api/v1/namespaces/default/pods/{pod}/eviction");
        self.wires.iter().map(|wire| wire.times(&eviction)).sum()
    }

    /// How often each machine was rebooted, and how often packages were ensured on it.
    fn work(&self) -> BTreeMap<String, (u64, usize)> {
        let effects = self.story.site.effects();
        let ensured = |name: &str| {
            let begun = effects.iter().filter(|effect| {
                effect.operation == "node.ensure" && effect.what == polity_sim::Happened::Submitted
            });
            begun.filter(|effect| effect.intent == name).count()
        };
        let machines = self.story.site.pool_machines().into_iter();
        machines
            .map(|machine| (machine.name.clone(), (machine.reboots, ensured(&machine.name))))
            .collect()
    }
}

/// Whether there are these nodes and no other, and each has this version, is ready, and may not be changed.
async fn all_are(story: &Story, workers: i32, kubernetes: &str) -> bool {
    let nodes = story.site.list("v1", "Node").await;
    nodes.len() == names(workers).len()
        && nodes.iter().all(|node| {
            told_by(node, CURRENT) == kubernetes
                && told_by(node, READY) == "true"
                && told_by(node, ALLOWED) != "true"
                && node["spec"]["unschedulable"] != true
                && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
        })
}

/// Takes turns, each with a disturbance at one output more, until a turn has no such output. How many were disturbed.
async fn at_every_output(
    cluster: &mut Cluster,
    (who, disturbance): (Who, Disturbance),
    turn: impl AsyncFn(&mut Cluster, u64),
) -> u64 {
    for nth in 1.. {
        let outputs = cluster.outputs(who);
        let before = outputs.count();
        match disturbance {
            Disturbance::Crash => outputs.end_after(Some(nth)),
            Disturbance::Loss => outputs.lose_the_answer_of(nth),
        }
        turn(cluster, nth).await;
        if outputs.count() - before < nth {
            outputs.end_after(None);
            return nth - 1;
        }
    }
    unreachable!("a turn has an end")
}

/// An upgrade with a reboot, of nodes that have pods; back to the version before with every second turn.
async fn upgrade(cluster: &mut Cluster, nth: u64, exact: bool) {
    let kubernetes = if nth.is_multiple_of(2) { OLD } else { NEW };
    let pods = [format!("web-{nth}"), format!("db-{nth}")];
    for (pod, node) in pods.iter().zip(["o-w-0", "o-cp-0"]) {
        pod_on(&cluster.story, pod, node).await;
    }
    let before = cluster.work();
    let versions = json!({"spec": {"versions": {"kubernetes": kubernetes}}});
    cluster.story.edit(versions).await;
    cluster.settles(1, kubernetes).await;
    for (name, (reboots, ensured)) in cluster.work() {
        let (rebooted, ensured_before) = before[&name];
        assert_eq!(reboots, rebooted + 1, "{name} at output {nth}");
        assert!(
            !exact || ensured == ensured_before + 1,
            "{name} at output {nth}: {ensured}"
        );
    }
    for pod in &pods {
        assert!(
            !exact || cluster.evictions(pod) == 1,
            "{pod}: {}",
            cluster.evictions(pod)
        );
    }
}

async fn pod_on(story: &Story, name: &str, node: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 5, "containers": [{"name": "web", "image": "web"}],
        },
    });
    story.create(&pod).await;
}

/// Upgrades with this disturbance of everybody at each of their outputs.
async fn upgrades(on: &dyn Backend, disturbance: Disturbance) {
    let reboots = json!({"packages": {"rebootFor": ["kubelet"]}});
    let exact = matches!(disturbance, Disturbance::Crash);
    for who in EVERYBODY {
        let mut cluster = Cluster::running(on, reboots.clone(), 1).await;
        let turn = async |cluster: &mut Cluster, nth| upgrade(cluster, nth, exact).await;
        let disturbed = at_every_output(&mut cluster, (who, disturbance), turn).await;
        assert!(disturbed > 3, "{who:?} was disturbed {disturbed} times");
    }
}

#[test]
fn an_upgrade_survives_a_crash_after_every_output_of_everybody() {
    let told = async |on: &dyn Backend| upgrades(on, Disturbance::Crash).await;
    crate::scenarios::on_a_paused_runtime(told, None);
}

#[test]
fn an_upgrade_survives_the_loss_of_every_answer() {
    let told = async |on: &dyn Backend| upgrades(on, Disturbance::Loss).await;
    crate::scenarios::on_a_paused_runtime(told, None);
}

/// A new cluster, where somebody crashes after so many outputs: how many that one made.
async fn new_cluster(on: &dyn Backend, overrides: Value, who: Who, crash: u64) -> u64 {
    let mut cluster = Cluster::begin(on, overrides, 1).await;
    let outputs = cluster.outputs(who);
    outputs.end_after(Some(crash));
    cluster.story.create(&orb(1, OLD)).await;
    cluster.settles(1, OLD).await;
    let machines = cluster.story.site.pool_machines();
    let mut nodes: Vec<&str> = machines.iter().map(|machine| &*machine.node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, names(1), "{who:?} at output {crash}");
    let effects = cluster.story.site.effects();
    let added = effects.iter().filter(|effect| {
        effect.operation == "pool.add-machine" && effect.what == polity_sim::Happened::Submitted
    });
    assert_eq!(added.count(), 2, "{who:?} at output {crash}");
    assert!(
        machines.iter().all(|machine| machine.reboots == 1),
        "{machines:?}"
    );
    outputs.count()
}

/// New clusters, each with a crash after one output more, of everybody.
fn new_clusters(overrides: &Value) {
    for who in EVERYBODY {
        for crash in 1.. {
            let made = std::cell::Cell::new(0);
            let told =
                async |on: &dyn Backend| made.set(new_cluster(on, overrides.clone(), who, crash).await);
            crate::scenarios::on_a_paused_runtime(told, None);
            if made.get() < crash {
                assert!(crash > 4, "{who:?} made {} outputs", made.get());
                break;
            }
        }
    }
}

#[test]
fn a_new_cluster_survives_a_crash_after_every_output_of_everybody() {
    new_clusters(&json!({}));
}

#[test]
fn a_new_cluster_survives_a_crash_while_nobody_can_say_what_came_of_it() {
    let dark = json!({"operation": "resolve", "count": 2, "then": {"fail": {"code": "unavailable"}}});
    new_clusters(&json!({"faults": [dark]}));
}

/// A worker less, and then again one more.
async fn smaller(cluster: &mut Cluster, nth: u64) {
    let pod = format!("web-{nth}");
    pod_on(&cluster.story, &pod, "o-w-1").await;
    let workers =
        |nodes: u32| json!({"spec": {"workers": [{"provider": "static", "pool": "w", "nodes": nodes}]}});
    cluster.story.edit(workers(1)).await;
    cluster.settles(1, OLD).await;
    assert_eq!(cluster.evictions(&pod), 1, "at output {nth}");
    cluster.story.edit(workers(2)).await;
    cluster.settles(2, OLD).await;
}

#[test]
fn a_smaller_cluster_survives_a_crash_after_every_output_of_orbiter() {
    let told = async |on: &dyn Backend| {
        let mut cluster = Cluster::running(on, json!({}), 2).await;
        let crash = (Who::Orbiter, Disturbance::Crash);
        let disturbed = at_every_output(&mut cluster, crash, smaller).await;
        assert!(disturbed > 3, "{disturbed}");
    };
    crate::scenarios::on_a_paused_runtime(told, None);
}

/// Literally, a node is done once it is what it wants, and begins anew at once when that is no longer what it needs.
async fn erratum_06(on: &dyn Backend) {
    let mut cluster = Cluster::running(on, json!({}), 1).await;
    let before = cluster.work();
    let version = |version: &str| json!({"spec": {"versions": {"kubernetes": version}}});
    cluster.story.edit(version(NEW)).await;
    let node = polity_tests::host_fixture::reference("v1", "Node", None, "o-cp-0");
    let first = async |story: &Story| story.site.get(&node).await.unwrap_or_default();
    let told = async |story: &Story| told_by(&first(story).await, DESIRED) == NEW;
    cluster.until("the first node is told", told).await;
    // Orbiter is away while that becomes what it wants, and while somebody wants something else.
    cluster
        .story
        .without_a_host(async |story| {
            while told_by(&first(story).await, CURRENT) != NEW
                || told_by(&first(story).await, READY) != "true"
            {
                story.sleep(LOOK_EVERY).await;
            }
            story.edit(version("1.30.5")).await;
        })
        .await;
    let done = cluster.story.passes().len();
    cluster.settles(1, "1.30.5").await;
    assert_eq!(
        tell_all(&cluster.story.passes()[done..])[..3],
        [
            "16 17 18 19 after 30 s",
            "16 17 24 after 30 s",
            "16 17 22 23 after 1 s"
        ]
    );
    let ensured = |name: &str| cluster.work()[name].1 - before[name].1;
    assert_eq!((ensured("o-cp-0"), ensured("o-w-0")), (2, 1));
}

#[test]
fn erratum_06_a_node_is_not_done_before_it_is_what_it_needs() {
    crate::scenarios::on_a_paused_runtime(erratum_06, None);
}
