//! The provider of pools, and each machine on its own.

use std::collections::{BTreeMap, BTreeSet};

use polity_sdk::Code;
use polity_sdk::contract::{Act, Failure, Question, Request};
use polity_sdk::test::{Answer, Cluster};
use serde_json::{Value, json};

use super::{ALLOWED, READY, Who};

type Versions = BTreeMap<String, String>;

/// How long things take, in milliseconds.
const INSTALLS: u64 = 20_000;
const REGISTERS: u64 = 40_000;
const REMOVES: u64 = 20_000;
const ENSURES: u64 = 35_000;
const BOOTS: u64 = 45_000;
/// A reboot is scheduled this long ahead.
const AHEAD: u64 = 10_000;

/// The provider and its machines.
pub struct Machines {
    cluster: Cluster,
    now: u64,
    pools: BTreeSet<String>,
    pub all: Vec<Machine>,
    tasks: BTreeMap<String, Task>,
    counter: u64,
    /// Packages after which a machine must reboot.
    pub reboot_for: BTreeSet<String>,
    /// Versions that do not exist.
    pub unknown: BTreeSet<String>,
    /// Tasks that end badly, by what they do.
    pub doomed: BTreeSet<&'static str>,
    /// Operations that fail, every time.
    pub fails: BTreeMap<&'static str, Failure>,
    /// Operations that answer something else.
    pub instead: BTreeMap<&'static str, Value>,
    /// What was done, in order.
    pub done: Vec<String>,
    pub tokens_revoked: u32,
    made_cluster: bool,
}

/// A machine as its provider sees it.
pub struct Machine {
    pub id: String,
    pub name: String,
    pub pool: String,
    pub tier: String,
    pub node_name: String,
    pub provider_id: String,
    pub replacement_required: bool,
    pub release: Option<String>,
    /// What its agent stands on; none before that is installed.
    pub host: Option<Host>,
    /// Nobody hears of its node.
    pub silent: bool,
    /// Its agent is installed, and never prepares anything.
    pub broken: bool,
}

/// A machine on its own.
#[derive(Default)]
pub struct Host {
    pub seed: Versions,
    pub initialized: bool,
    pub installed: Versions,
    work: Option<Work>,
    pub boot: u32,
    reboot_at: Option<u64>,
    up_at: u64,
    reboot_required: bool,
    /// It does not come back from its next reboot.
    pub never_returns: bool,
    /// How often it was rebooted.
    pub reboots: u32,
    /// For whom it answers instead.
    pub answers_for: Option<String>,
    pub ensured: u32,
}

struct Work {
    versions: Versions,
    ends: u64,
    ended: Option<Result<(), String>>,
    boot: Option<u32>,
}

struct Task {
    kind: &'static str,
    machine: String,
    ends: u64,
    ended: bool,
    arguments: Value,
}

fn failed(code: Code, message: &str) -> Failure {
    Failure::new(code, message)
}

impl Machines {
    pub fn new(cluster: Cluster) -> Self {
        Machines {
            cluster,
            now: 0,
            pools: BTreeSet::new(),
            all: Vec::new(),
            tasks: BTreeMap::new(),
            counter: 0,
            reboot_for: BTreeSet::new(),
            unknown: BTreeSet::new(),
            doomed: BTreeSet::new(),
            fails: BTreeMap::new(),
            instead: BTreeMap::new(),
            done: Vec::new(),
            tokens_revoked: 0,
            made_cluster: false,
        }
    }

    /// The nodes whose agents are installed.
    pub fn agents(&self) -> Vec<String> {
        let installed = self
            .all
            .iter()
            .filter(|machine| machine.host.is_some() && !machine.broken);
        installed.map(|machine| machine.node_name.clone()).collect()
    }

    /// The nodes that are being changed: packages are installed, or a reboot is under way.
    pub fn changing(&self) -> Vec<String> {
        let busy = |host: &Host| {
            let working = host.work.as_ref().is_some_and(|work| work.ended.is_none());
            host.initialized && (working || host.reboot_at.is_some() || host.up_at > self.now)
        };
        let changing = self
            .all
            .iter()
            .filter(|machine| machine.host.as_ref().is_some_and(busy));
        changing.map(|machine| machine.node_name.clone()).collect()
    }

    /// The machine of this name.
    pub fn get(&mut self, name: &str) -> &mut Machine {
        self.all
            .iter_mut()
            .find(|machine| machine.name == name)
            .expect("it is there")
    }

    /// Lets everything happen that is due by now.
    pub fn advance_to(&mut self, now: u64) {
        self.now = now;
        let due: Vec<String> = self
            .tasks
            .iter()
            .filter(|(_, t)| !t.ended && t.ends <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            let task = self.tasks.get_mut(&id).expect("found above");
            task.ended = true;
            let (kind, machine, arguments) = (task.kind, task.machine.clone(), task.arguments.clone());
            self.finish(kind, &machine, &arguments);
        }
        let (unknown, reboot_for) = (&self.unknown, &self.reboot_for);
        for machine in &mut self.all {
            if let Some(host) = &mut machine.host {
                host.advance_to(now, unknown, reboot_for);
            }
        }
        for at in 0..self.all.len() {
            self.show(at);
        }
    }

    fn finish(&mut self, kind: &str, id: &str, arguments: &Value) {
        if self.doomed.contains(kind) {
            return;
        }
        let Some(at) = self.all.iter().position(|machine| machine.id == id) else {
            return;
        };
        let machine = &mut self.all[at];
        match kind {
            "install" => {
                let seed = serde_json::from_value(arguments["versions"].clone()).unwrap();
                machine.release = arguments["release"].as_str().map(str::to_owned);
                let host = machine.host.get_or_insert_with(Host::default);
                host.seed = seed;
                host.boot = host.boot.max(1);
            }
            "remove" => {
                self.all.remove(at);
            }
            _ => {
                self.made_cluster = true;
                let taints = arguments["taints"].as_array().cloned().unwrap_or_default();
                self.cluster.put(json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": machine.node_name, "uid": format!("uid-{}", machine.id), "labels": arguments["labels"]},
                    "spec": {"providerID": machine.provider_id, "taints": taints},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                }));
            }
        }
    }

    /// Writes whether a node is ready, where that has changed.
    fn show(&self, at: usize) {
        let machine = &self.all[at];
        let Some(node) = self.cluster.get("Node", &machine.node_name) else {
            return;
        };
        if node["spec"]["providerID"] != machine.provider_id.as_str() {
            return;
        }
        let up = machine.host.as_ref().is_none_or(|host| host.up_at <= self.now);
        let ready = if up && !machine.silent { "True" } else { "Unknown" };
        let mut conditions = node["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let own = conditions
            .iter_mut()
            .find(|condition| condition["type"] == "Ready");
        if let Some(own) = own.filter(|own| own["status"] != ready) {
            own["status"] = ready.into();
            self.cluster.edit(
                "Node",
                &machine.node_name,
                json!({"status": {"conditions": conditions}}),
            );
        }
    }

    /// Answers a question.
    pub fn ask(&self, who: &Who, request: &Request) -> Answer {
        let Request::Ask(ask) = request else {
            panic!("an ask")
        };
        let Question::Cloud(call) = &ask.question else {
            panic!("a question to the cloud")
        };
        let operation = call.operation.as_str();
        if let Some(failure) = self.fails.get(operation) {
            return Err(failure.clone());
        }
        if let Some(answer) = self.instead.get(operation) {
            return Ok(answer.to_string());
        }
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let answer = match operation {
            "pool.list" => {
                let pool = |pool: &String| json!({"pool": pool, "addresses": ["10.0.0.1"]});
                json!({"pools": self.pools.iter().map(pool).collect::<Vec<_>>()})
            }
            "pool.machines" => {
                json!({"machines": self.all.iter().map(Machine::describe).collect::<Vec<_>>()})
            }
            "task.get" => {
                let task = self.tasks.get(arguments["id"].as_str().unwrap());
                let task = task.ok_or_else(|| failed(Code::NotFound, "no such task"))?;
                let state = match (task.ended, self.doomed.contains(task.kind)) {
                    (false, _) => "running",
                    (true, false) => "success",
                    (true, true) => "error",
                };
                let error = json!({"fault": "Broken", "message": "by the test"});
                json!({"id": arguments["id"], "state": state, "kind": task.kind, "error": error})
            }
            _ => {
                return self
                    .host(who, &arguments)?
                    .ask(operation, &arguments)
                    .map(|answer| answer.to_string());
            }
        };
        Ok(answer.to_string())
    }

    fn host(&self, who: &Who, arguments: &Value) -> Result<&Host, Failure> {
        let name = arguments["node"].as_str().unwrap();
        assert_eq!(
            *who,
            Who::Agent(name.to_owned()),
            "an agent asks for its own node only"
        );
        let machine = self.all.iter().find(|machine| machine.node_name == name);
        let host = machine.and_then(|machine| machine.host.as_ref());
        let host = host.ok_or_else(|| failed(Code::NotFound, "no agent is installed"))?;
        match host.up_at > self.now {
            true => Err(failed(Code::Unavailable, "it boots")),
            false => Ok(host),
        }
    }

    /// Performs an act.
    pub fn act(&mut self, who: &Who, act: &Act) -> Answer {
        let act = match act {
            Act::Cloud(act) => act,
            Act::Mint(mint) => return Ok(json!({"$secret": {"name": mint.kind, "key": "k"}}).to_string()),
            Act::Revoke(_) => {
                self.tokens_revoked += 1;
                return Ok("{}".to_owned());
            }
            _ => panic!("an act of the cloud"),
        };
        let operation = act.operation.as_str();
        if let Some(failure) = self.fails.get(operation) {
            return Err(failure.clone());
        }
        let arguments: Value = serde_json::from_str(&act.arguments).unwrap();
        let id = arguments["machine"].as_str().unwrap_or_default().to_owned();
        let text = |field: &str| arguments[field].as_str().unwrap_or_default().to_owned();
        match operation {
            "pool.ensure" => {
                let pools = arguments["pools"].as_array().unwrap().iter();
                self.pools
                    .extend(pools.map(|pool| pool["pool"].as_str().unwrap().to_owned()));
                Ok("{}".to_owned())
            }
            "pool.add-machine" => {
                let name = text("name");
                if self.all.iter().any(|machine| machine.name == name) {
                    return Err(failed(Code::AlreadyExists, "there is one"));
                }
                self.counter += 1;
                let machine = Machine {
                    id: format!("m-{}", self.counter),
                    node_name: name.clone(),
                    provider_id: format!("sim:///m-{}", self.counter),
                    name,
                    pool: text("pool"),
                    tier: text("tier"),
                    replacement_required: false,
                    release: None,
                    host: None,
                    silent: false,
                    broken: false,
                };
                let answer = machine.describe().to_string();
                self.all.push(machine);
                Ok(answer)
            }
            "pool.remove-machine" => self.submit("remove", &id, REMOVES, arguments),
            "agent.install" => self.submit("install", &id, INSTALLS, arguments),
            "kubeadm.init" if self.made_cluster => Err(failed(Code::AlreadyExists, "there is a cluster")),
            "kubeadm.init" => self.submit("init", &id, REGISTERS, arguments),
            "kubeadm.join" => self.submit("join", &id, REGISTERS, arguments),
            _ => self.on_host(who, operation, &arguments),
        }
    }

    fn submit(&mut self, kind: &'static str, machine: &str, takes: u64, arguments: Value) -> Answer {
        if !self.all.iter().any(|known| known.id == machine) {
            return Err(failed(Code::NotFound, "no such machine"));
        }
        let mut running = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.ended && task.machine == machine);
        if let Some((id, task)) = running.next() {
            return match task.kind == kind {
                true => Ok(json!({"task": id}).to_string()),
                false => Err(failed(Code::FailedPrecondition, "it is busy")),
            };
        }
        self.counter += 1;
        let id = format!("task-{}", self.counter);
        let task = Task {
            kind,
            machine: machine.to_owned(),
            ends: self.now + takes,
            ended: false,
            arguments,
        };
        self.tasks.insert(id.clone(), task);
        Ok(json!({"task": id}).to_string())
    }

    /// Forgets every task.
    pub fn forget_tasks(&mut self) {
        self.tasks.clear();
    }

    fn on_host(&mut self, who: &Who, operation: &str, arguments: &Value) -> Answer {
        self.host(who, arguments)?;
        let (now, cluster) = (self.now, self.cluster.clone());
        let name = arguments["node"].as_str().unwrap();
        let machine = self
            .all
            .iter_mut()
            .find(|machine| machine.node_name == name)
            .unwrap();
        let host = machine.host.as_mut().unwrap();
        match operation {
            "node.ensure" => {
                if host.initialized {
                    let node = cluster
                        .get("Node", name)
                        .expect("a change is asked for by a Node");
                    let annotations = &node["metadata"]["annotations"];
                    assert_eq!(annotations[ALLOWED], "true", "{name} is changed and may not be");
                    assert_eq!(
                        annotations[READY], "false",
                        "{name} is changed and says that it is ready"
                    );
                }
                host.ensure(
                    serde_json::from_value(arguments["versions"].clone()).unwrap(),
                    now,
                )
            }
            "node.initialized" => {
                host.initialized = true;
                Ok("{}".to_owned())
            }
            "node.reboot" => host.reboot(arguments["bootId"].as_str().unwrap(), now),
            _ => panic!("no such operation: {operation}"),
        }
    }
}

impl Machine {
    /// What its provider says of it.
    pub fn describe(&self) -> Value {
        let agent = match &self.host {
            None => "absent",
            Some(host) if host.initialized => "initialized",
            Some(_) => "running",
        };
        json!({
            "id": self.id, "name": self.name, "pool": self.pool, "tier": self.tier, "nodeName": self.node_name,
            "providerID": self.provider_id, "agent": agent, "agentRelease": self.release,
            "replacementRequired": self.replacement_required,
        })
    }
}

impl Host {
    fn advance_to(&mut self, now: u64, unknown: &BTreeSet<String>, reboot_for: &BTreeSet<String>) {
        if let Some(work) = self
            .work
            .as_mut()
            .filter(|work| work.ended.is_none() && work.ends <= now)
        {
            let missing = work.versions.values().find(|version| unknown.contains(*version));
            work.boot = Some(self.boot);
            work.ended = Some(missing.map_or(Ok(()), |version| Err(format!("no version {version}"))));
            if missing.is_none() {
                let differs = |package: &&String| self.installed.get(*package) != work.versions.get(*package);
                self.reboot_required |= work
                    .versions
                    .keys()
                    .filter(differs)
                    .any(|package| reboot_for.contains(package));
                self.installed.extend(work.versions.clone());
            }
        }
        if self.reboot_at.is_some_and(|at| at <= now) {
            let at = self.reboot_at.take().unwrap_or_default();
            self.up_at = if self.never_returns { u64::MAX } else { at + BOOTS };
            self.boot += 1;
            self.reboots += 1;
            self.reboot_required = false;
        }
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    fn ask(&self, operation: &str, arguments: &Value) -> Result<Value, Failure> {
        let node = self
            .answers_for
            .as_ref()
            .map_or(&arguments["node"], |_| &Value::Null);
        let node = self
            .answers_for
            .as_ref()
            .map_or(node.clone(), |other| json!(other));
        let state = |work: &Work| match &work.ended {
            None => json!({"versions": work.versions, "state": "running"}),
            Some(Ok(())) => {
                json!({"versions": work.versions, "state": "done", "bootId": format!("boot-{}", work.boot.unwrap())})
            }
            Some(Err(message)) => json!({
                "versions": work.versions, "state": "failed", "bootId": format!("boot-{}", work.boot.unwrap()),
                "error": {"code": "not-found", "message": message},
            }),
        };
        Ok(match operation {
            "node.seed" => json!({"node": node, "versions": self.seed, "initialized": self.initialized}),
            "node.work" => {
                json!({"node": node, "bootId": self.boot_id(), "work": self.work.as_ref().map(state)})
            }
            "node.reboot-required" => json!({"node": node, "required": self.reboot_required}),
            "node.versions" => {
                let asked = arguments["packages"].as_array().unwrap();
                let has =
                    |(package, _): &(&String, &String)| asked.iter().any(|asked| *asked == json!(package));
                let versions: Versions = self
                    .installed
                    .iter()
                    .filter(has)
                    .map(|(p, v)| (p.clone(), v.clone()))
                    .collect();
                json!({"node": node, "versions": versions})
            }
            _ => panic!("no such operation: {operation}"),
        })
    }

    fn ensure(&mut self, versions: Versions, now: u64) -> Answer {
        if let Some(work) = self.work.as_ref().filter(|work| work.ended.is_none()) {
            return match work.versions == versions {
                true => Ok("{}".to_owned()),
                false => Err(failed(
                    Code::FailedPrecondition,
                    "other versions are being installed",
                )),
            };
        }
        self.ensured += 1;
        self.work = Some(Work {
            versions,
            ends: now + ENSURES,
            ended: None,
            boot: None,
        });
        Ok("{}".to_owned())
    }

    fn reboot(&mut self, boot_id: &str, now: u64) -> Answer {
        if boot_id != self.boot_id() {
            return Err(failed(Code::FailedPrecondition, "that boot is over"));
        }
        self.reboot_at.get_or_insert(now + AHEAD);
        Ok("{}".to_owned())
    }
}
