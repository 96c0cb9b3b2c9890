//! A small land for scenarios: machines, the nodes they become, orbiter and every machine's agent, in one time.
//!
//! The policies run one pass at a time, each when its last pass asked for it. What a host does around a pass is done
//! here as well: creates are written down before they are performed, edits are published at the end, and a crash takes
//! a pass away after any of its outputs.

mod machines;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use polity_sdk::contract::{Act, Conclusion, Failure, Pass, Request, Step};
use polity_sdk::test::{Answer, Cluster, Ended, describe, drive};
use polity_sdk::{ActInDoubt, Code, Effect, Next, Resolution, Time, step};
use serde_json::{Value, json};

#[allow(unused_imports, reason = "not by every test")]
pub use machines::{Host, Machine, Machines};

/// 2026-01-01T00:00:00Z
const BEGINNING: u64 = 1_767_225_600_000;
pub const ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";
pub const READY: &str = "alpha.node.caos.ch/ready";
const FINALIZER: &str = "orbiter.polity.dev/orb";

/// Who decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Orbiter,
    /// The agent of this node.
    Agent(String),
}

/// Everything there is.
pub struct Land {
    pub cluster: Cluster,
    machines: Rc<RefCell<Machines>>,
    pub now: u64,
    /// When each passes next.
    due: BTreeMap<Who, u64>,
    /// How often each ended in a failure, in an unbroken row.
    attempts: BTreeMap<Who, u32>,
    pub orbiter: Value,
    pub agent: Value,
    /// What orbiter's host has written ahead.
    pending: Vec<ActInDoubt>,
    /// Of entries in doubt nothing is known while this is more than nothing.
    pub in_the_dark: u32,
    /// Who crashes, and after how many of its outputs.
    pub crash: Option<(Who, u32)>,
    /// The answer of this output is lost.
    pub lose: Option<(Who, u32)>,
    lose_acts_only: bool,
    outputs: BTreeMap<Who, u32>,
    /// Agents that do not pass.
    pub dead: BTreeSet<String>,
    /// Orbiter does not pass.
    pub dead_orbiter: bool,
    /// A test breaks what always holds.
    pub unchecked: bool,
    /// What happened: who, the edges without those of every pass, how it goes on.
    pub story: Vec<(Who, String)>,
    pub events: Vec<String>,
}

impl Land {
    /// A land with this Orb, and nothing else yet.
    pub fn new(control_planes: u32, workers: u32, kubernetes: &str) -> Self {
        let cluster = Cluster::default();
        cluster.put(json!({
            "apiVersion": "orbiter.polity.dev/v1alpha1", "kind": "Orb", "metadata": {"name": "o", "generation": 1},
            "spec": {
                "controlPlane": {"provider": "static", "pool": "cp", "nodes": control_planes},
                "workers": [{"provider": "static", "pool": "w", "nodes": workers}],
                "versions": {"kubernetes": kubernetes, "containerd": "1.7.1"},
            },
        }));
        Land {
            machines: Rc::new(RefCell::new(Machines::new(cluster.clone()))),
            cluster,
            now: BEGINNING,
            due: BTreeMap::from([(Who::Orbiter, BEGINNING)]),
            attempts: BTreeMap::new(),
            orbiter: json!({}),
            agent: json!({}),
            pending: Vec::new(),
            in_the_dark: 0,
            crash: None,
            lose: None,
            lose_acts_only: false,
            outputs: BTreeMap::new(),
            dead: BTreeSet::new(),
            dead_orbiter: false,
            unchecked: false,
            story: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The same, with everything as it should be.
    pub fn running(control_planes: u32, workers: u32, kubernetes: &str) -> Self {
        let mut land = Land::new(control_planes, workers, kubernetes);
        land.settle();
        land.story.clear();
        land.outputs.clear();
        land.machines().done.clear();
        land
    }

    /// The machines, to be looked at or changed.
    pub fn machines(&self) -> RefMut<'_, Machines> {
        self.machines.borrow_mut()
    }

    /// What a machine is on its own, by its node's name.
    pub fn host<T>(&self, node: &str, look: impl FnOnce(&mut Host) -> T) -> T {
        let mut machines = self.machines();
        let machine = machines.all.iter_mut().find(|machine| machine.node_name == node);
        look(
            machine
                .and_then(|machine| machine.host.as_mut())
                .expect("it has an agent"),
        )
    }

    /// A person changes the Orb's spec.
    pub fn spec(&self, change: Value) {
        self.cluster.edit("Orb", "o", json!({"spec": change}));
    }

    pub fn version(&self, kubernetes: &str) {
        self.spec(json!({"versions": {"kubernetes": kubernetes}}));
    }

    pub fn orb(&self) -> Value {
        self.cluster.get("Orb", "o").unwrap_or_default()
    }

    pub fn status(&self) -> Value {
        self.orb()["status"].clone()
    }

    /// The reason of the Orb's condition.
    pub fn reason(&self) -> String {
        let status = self.status();
        let reason = status.pointer("/conditions/0/reason").and_then(Value::as_str);
        reason.unwrap_or_default().to_owned()
    }

    pub fn node(&self, name: &str) -> Value {
        self.cluster.get("Node", name).unwrap_or_default()
    }

    /// The reason of the condition in which an agent says how it fares.
    pub fn said(&self, node: &str) -> String {
        let node = self.node(node);
        let conditions = node["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let own = conditions
            .iter()
            .find(|condition| condition["type"] == "PackagesEnsured");
        own.and_then(|own| own["reason"].as_str())
            .unwrap_or_default()
            .to_owned()
    }

    pub fn annotation(&self, node: &str, name: &str) -> String {
        let node = self.node(node);
        node["metadata"]["annotations"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The nodes that may be changed.
    pub fn allowed(&self) -> Vec<String> {
        let all = self.cluster.all();
        let nodes = all.iter().filter(|object| object["kind"] == "Node");
        let allowed = nodes.filter(|node| node["metadata"]["annotations"][ALLOWED] == "true");
        allowed
            .map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The nodes that are cordoned, by whomever.
    pub fn cordoned(&self) -> Vec<String> {
        let all = self.cluster.all();
        let nodes = all
            .iter()
            .filter(|object| object["kind"] == "Node" && object["spec"]["unschedulable"] == true);
        nodes
            .map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The nodes that orbiter has cordoned.
    pub fn marked(&self) -> Vec<String> {
        let all = self.cluster.all();
        let marked = |node: &&Value| {
            node["spec"]["taints"]
                .to_string()
                .contains("orbiter.polity.dev/updating")
        };
        let nodes = all
            .iter()
            .filter(|object| object["kind"] == "Node")
            .filter(marked);
        nodes
            .map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// A pod of a shop, on this node.
    pub fn pod(&self, name: &str, node: &str) {
        self.cluster.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}}, "spec": {"nodeName": node},
        }));
    }

    /// How many disruptions of a pod are allowed.
    pub fn budget(&self, name: &str, allowed: u32) {
        self.cluster.put(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": name}}},
            "status": {"disruptionsAllowed": allowed, "expectedPods": 2, "desiredHealthy": 1},
        }));
    }

    /// The edges that orbiter has taken.
    pub fn orbiter_took(&self) -> String {
        edges(&self.story, &Who::Orbiter)
    }

    /// The edges that the agent of a node has taken.
    pub fn agent_took(&self, node: &str) -> String {
        edges(&self.story, &Who::Agent(node.to_owned()))
    }

    /// The names of the machines that there are.
    pub fn names(&self) -> Vec<String> {
        self.machines()
            .all
            .iter()
            .map(|machine| machine.name.clone())
            .collect()
    }

    /// What was done that begins like this, in order.
    pub fn done(&self, begin: &str) -> Vec<String> {
        self.machines()
            .done
            .iter()
            .filter(|done| done.starts_with(begin))
            .cloned()
            .collect()
    }

    /// The next pass of whoever is due first.
    pub fn step(&mut self) -> (Who, Ended) {
        let installed = self.machines().agents();
        for node in installed {
            self.due.entry(Who::Agent(node)).or_insert(self.now);
        }
        let alive = |who: &Who| match who {
            Who::Agent(node) => !self.dead.contains(node),
            Who::Orbiter => !self.dead_orbiter,
        };
        let next = self
            .due
            .iter()
            .filter(|(who, _)| alive(who))
            .min_by_key(|(_, due)| **due);
        let (who, due) = next
            .map(|(who, due)| (who.clone(), *due))
            .expect("somebody is due");
        self.now = self.now.max(due);
        self.machines().advance_to(self.now);
        self.cluster.advance_to(Time::from_unix_ms(self.now));
        let ended = self.pass(&who);
        if !self.unchecked {
            self.check();
        }
        (who, ended)
    }

    /// Passes until orbiter says that everything is as it should be.
    pub fn settle(&mut self) {
        self.settle_within(3_000);
    }

    pub fn settle_within(&mut self, passes: u32) {
        for _ in 0..passes {
            let (who, ended) = self.step();
            if who == Who::Orbiter && matches!(ended.next, Next::Settled(_)) {
                return;
            }
        }
        let last = self.story.iter().rev().take(30).rev();
        panic!(
            "not settled: {:#?}\n{:#}",
            last.collect::<Vec<_>>(),
            self.status()
        );
    }

    pub fn is_settled(&self) -> bool {
        self.reason() == "Running" && self.status()["changing"].is_null()
    }

    /// Passes for this long.
    pub fn live(&mut self, seconds: u64) {
        let until = self.now + seconds * 1000;
        while self.now < until {
            self.step();
        }
    }

    /// Passes until this is so.
    pub fn until(&mut self, is: impl Fn(&Land) -> bool) {
        for _ in 0..3_000 {
            if is(self) {
                return;
            }
            self.step();
        }
        let last = self.story.iter().rev().take(30).rev();
        panic!(
            "it never comes: {:#?}\n{:#}",
            last.collect::<Vec<_>>(),
            self.status()
        );
    }

    /// One pass of somebody, and what its host does around it.
    fn pass(&mut self, who: &Who) -> Ended {
        let primary = match who {
            Who::Orbiter => self.cluster.get("Orb", "o"),
            Who::Agent(node) => self.cluster.get("Node", node),
        };
        let pending = self.doubts(who);
        let pass = Pass {
            object: primary.as_ref().map(Value::to_string),
            now: self.now,
            causes: Vec::new(),
            attempt: self.attempts.get(who).copied().unwrap_or(0),
            config: self.config(who).to_string(),
            pending,
            journal: Vec::new(),
        };
        let (mut crashed, mut performed) = (false, Vec::new());
        let agent = matches!(who, Who::Agent(_));
        let driven = drive(
            pass,
            |pass| match step_of(agent, pass) {
                Step::Pending(requests) => Err(requests),
                Step::Concluded(conclusion) => Ok(conclusion),
            },
            |conclusion: &Conclusion| &conclusion.used,
            |request| Some(self.answer(who, request, &mut crashed, &mut performed)),
        );
        let conclusion = driven.conclusion;
        let mut ended = Ended {
            steps: driven.steps,
            journal: driven.journal,
            patch: conclusion
                .patch
                .map(|patch| serde_json::from_str(&patch).expect("a patch is JSON")),
            events: conclusion.events,
            notes: conclusion.notes,
            next: conclusion.next,
        };
        if !crashed {
            crashed = self.publish(who, &ended, &performed);
        }
        if crashed {
            self.crash = None;
            ended.next = Next::After(1_000);
            self.story.push((who.clone(), "crash".to_owned()));
        } else {
            self.story.push((who.clone(), told(&ended)));
            let name = |event: &polity_sdk::contract::Event| format!("{}: {}", event.reason, event.message);
            self.events.extend(ended.events.iter().map(name));
        }
        let failed = matches!(&ended.next, Next::Retry(retry) if retry.failure.is_some());
        let attempt = self.attempts.entry(who.clone()).or_default();
        *attempt = if failed { *attempt + 1 } else { 0 };
        let wait = match &ended.next {
            Next::Settled(Some(ms)) | Next::After(ms) => *ms,
            Next::Settled(None) => 3_600_000,
            Next::Retry(retry) => {
                let asked = retry.failure.as_ref().and_then(|failure| failure.retry_after);
                (1_000u64 << (*attempt).min(8)).max(asked.unwrap_or(0))
            }
        };
        self.due.insert(who.clone(), self.now + wait);
        ended
    }

    fn config(&self, who: &Who) -> Value {
        match who {
            Who::Orbiter => self.orbiter.clone(),
            Who::Agent(node) => {
                let mut config = self.agent.clone();
                config["node"] = json!(node);
                config
            }
        }
    }

    /// What the host tells of creates that were begun and not published.
    fn doubts(&mut self, who: &Who) -> Vec<ActInDoubt> {
        if *who != Who::Orbiter || self.pending.is_empty() {
            return Vec::new();
        }
        if self.in_the_dark > 0 {
            self.in_the_dark -= 1;
            return self.pending.clone();
        }
        let machines = self.machines.borrow();
        let settled = self.pending.drain(..).map(|entry| {
            let made = machines.all.iter().find(|machine| machine.name == entry.intent);
            let resolution = made.map_or(Resolution::Absent, |made| {
                Resolution::Done(made.describe().to_string())
            });
            ActInDoubt { resolution, ..entry }
        });
        settled.collect()
    }

    fn answer(
        &mut self,
        who: &Who,
        request: &Request,
        crashed: &mut bool,
        performed: &mut Vec<String>,
    ) -> Answer {
        if *crashed {
            return Err(Failure::new(Code::Unavailable, "crashed"));
        }
        let Request::Act(act) = request else {
            let answer = self.cluster.answer(request);
            return answer.unwrap_or_else(|| self.machines().ask(who, request));
        };
        if let Act::Cloud(create) = act
            && let Some(intent) = &create.intent
        {
            self.pending.push(ActInDoubt {
                operation: create.operation.clone(),
                intent: intent.clone(),
                since: self.now,
                resolution: Resolution::Unknown("the cloud cannot say yet".to_owned()),
            });
        }
        self.hold(who);
        let answer = self.cluster.answer(request);
        let answer = answer.unwrap_or_else(|| self.machines().act(who, act));
        let nth = self.output(who);
        self.machines().done.push(describe(request));
        if self.lose.as_ref() == Some(&(who.clone(), nth)) {
            self.lose = None;
            return Err(Failure {
                effect: Effect::Unknown,
                ..Failure::new(Code::DeadlineExceeded, "no answer")
            });
        }
        if let Act::Cloud(create) = act {
            performed.extend(create.intent.clone());
        }
        *crashed = self.crash.as_ref() == Some(&(who.clone(), nth));
        answer
    }

    fn output(&mut self, who: &Who) -> u32 {
        let nth = self.outputs.entry(who.clone()).or_default();
        *nth += 1;
        *nth
    }

    /// How many outputs somebody has made.
    pub fn outputs(&self, who: &Who) -> u32 {
        self.outputs.get(who).copied().unwrap_or(0)
    }

    /// The finalizer is there before the first act.
    fn hold(&self, who: &Who) {
        if *who == Who::Orbiter && self.orb()["metadata"]["finalizers"].is_null() {
            self.cluster
                .edit("Orb", "o", json!({"metadata": {"finalizers": [FINALIZER]}}));
        }
    }

    /// Publishes; whether that was the last thing that this host did.
    fn publish(&mut self, who: &Who, ended: &Ended, performed: &[String]) -> bool {
        self.pending.retain(|entry| !performed.contains(&entry.intent));
        let Some(patch) = &ended.patch else { return false };
        let (kind, name) = match who {
            Who::Orbiter => ("Orb", "o"),
            Who::Agent(node) => ("Node", node.as_str()),
        };
        self.cluster.edit(kind, name, patch.clone());
        let object = self.cluster.get(kind, name).unwrap_or_default();
        let held = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|held| !held.is_empty());
        if !object["metadata"]["deletionTimestamp"].is_null() && !held {
            self.cluster.remove(kind, name);
        }
        let nth = self.output(who);
        if self.lose_acts_only && self.lose.as_ref() == Some(&(who.clone(), nth)) {
            self.lose = None;
        }
        self.crash.as_ref() == Some(&(who.clone(), nth))
    }

    /// What is lost is the answer of the next act, if that output is a publication.
    pub fn lose_if_act(&mut self) {
        self.lose_acts_only = true;
    }

    /// Somebody deletes the Orb.
    pub fn delete(&self) {
        self.cluster.edit(
            "Orb",
            "o",
            json!({"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}}),
        );
    }

    /// What always holds.
    fn check(&self) {
        let allowed = self.allowed();
        assert!(allowed.len() <= 1, "two nodes may change: {allowed:?}");
        let changing = self.machines().changing();
        assert!(changing.len() <= 1, "two nodes are being changed: {changing:?}");
        if let (Some(changing), Some(allowed)) = (changing.first(), allowed.first()) {
            assert_eq!(changing, allowed, "one is changed and another one may change");
        }
        let mut touched: BTreeSet<String> = self.marked().into_iter().collect();
        touched.extend(changing);
        touched.extend(allowed);
        assert!(touched.len() <= 1, "two nodes are touched: {touched:?}");
    }
}

fn step_of(agent: bool, pass: Pass) -> Step {
    match agent {
        true => step::lifecycle(pass, orbiter_node_agent::reconcile),
        false => step::lifecycle(pass, orbiter::reconcile),
    }
}

/// The edges without those of every pass, and how it goes on.
fn told(ended: &Ended) -> String {
    let ids = ended.notes.iter().map(|id| id.trim_start_matches("ORB-"));
    let mut told: Vec<String> = ids
        .filter(|id| !["01", "02"].contains(id))
        .map(str::to_owned)
        .collect();
    told.push(match &ended.next {
        Next::Settled(_) => "settled".to_owned(),
        Next::After(ms) => format!("after {} s", ms / 1000),
        Next::Retry(retry) => match &retry.failure {
            Some(failure) => format!("{:?}: {}", retry.class, failure.message),
            None => format!("{:?}", retry.class),
        },
    });
    told.join(" ")
}

/// The edges that were taken, in order; of passes that were alike the first alone.
pub fn edges(story: &[(Who, String)], who: &Who) -> String {
    let mut passes: Vec<&str> = story
        .iter()
        .filter(|(by, _)| by == who)
        .map(|(_, told)| told.as_str())
        .collect();
    passes.dedup();
    let mut all: Vec<&str> = Vec::new();
    for told in passes {
        let ids = told
            .split(' ')
            .take_while(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        all.extend(ids);
    }
    all.dedup();
    all.join(" ")
}
