//! The test harness of the simulated cloud: calls, configurations, and a clock that the test moves.

pub(crate) use polity_core::call::{CloudRequest, PendingEntry, Session};
pub(crate) use polity_core::contract::{Answer, Code, Failure, Resolution};
pub(crate) use polity_core::time::{Unix, millis};
pub(crate) use serde_json::{Value, json};
pub(crate) use std::time::Duration;

use polity_kube_rules::schema::{Dialect, compile};

pub(crate) use crate::*;

/// Milliseconds, which the tests count.
pub(crate) const BEGINS_WITHIN: u64 = crate::BEGINS_WITHIN.as_millis() as u64;

pub(crate) const START: u64 = 1_000_000;

/// Checks that a schema of the catalogue allows this value.
pub(crate) fn assert_allows(schema: &Value, value: &Value) {
    let schema = compile(Dialect::Json, "", schema).expect("a schema");
    assert_eq!(schema.check(value), Ok(()), "{value}");
}

pub(crate) fn session(owner: &str) -> Session {
    Session {
        cloud: "sim".to_owned(),
        handle: None,
        owner: owner.to_owned(),
        tenant: format!("ns-{owner}"),
        tenant_queue: "".into(),
        namespace: Some(format!("ns-{owner}")),
    }
}

pub(crate) fn request(owner: &str, operation: &str, arguments: Value) -> CloudRequest {
    let creates = ["vm.clone", "machine.create", "pool.add-machine", "router.boot"].contains(&operation);
    let key = creates.then(|| format!("key-{owner}"));
    CloudRequest {
        session: session(owner),
        operation: operation.to_owned(),
        arguments,
        key,
    }
}

pub(crate) fn clone_of(owner: &str, name: &str) -> CloudRequest {
    request(owner, "vm.clone", clone_arguments(owner, name))
}

pub(crate) fn clone_arguments(owner: &str, name: &str) -> Value {
    json!({
        "name": name,
        "instanceUuid": owner,
        "template": "ubuntu",
        "cpus": 2,
        "coresPerSocket": 2,
        "memoryMiB": 2048,
        "networks": ["net"],
    })
}

/// A configuration with fixed times and without lag, so that every moment is known.
pub(crate) fn plain() -> SimConfig {
    let task = Between::exactly(10_000);
    SimConfig {
        lag: Millis(0),
        answers: Between::exactly(10),
        queue: Between::exactly(1_000),
        tasks: TaskDurations {
            clone: task,
            reconfigure: task,
            power_on: task,
            power_off: task,
            destroy: task,
            push: Between::exactly(3_000),
        },
        dhcp: Between::exactly(5_000),
        machines: Machines {
            boot: Between::exactly(20_000),
            join: Between::exactly(10_000),
            ..Machines::default()
        },
        pools: PoolDurations {
            install: task,
            init: task,
            join: task,
            remove: task,
        },
        packages: Packages {
            takes: Between::exactly(30_000),
            reboot_for: vec!["kernel".to_owned()],
            ..Packages::default()
        },
        routers: Routers {
            build: Between::exactly(2_000),
            boot: Between::exactly(10_000),
            plug: Between::exactly(2_000),
            stop: Between::exactly(5_000),
            ..Routers::default()
        },
        ..SimConfig::default()
    }
}

/// A simulation with a clock that the test moves.
pub(crate) struct Bench {
    pub(crate) sim: Sim,
    pub(crate) now: u64,
}

impl Bench {
    pub(crate) fn new(config: SimConfig) -> Self {
        Bench {
            sim: Sim::new(config, 7, START),
            now: START,
        }
    }

    /// Continues the same cloud with another configuration, as after a restart.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut SimConfig)) {
        let mut config = self.sim.config.clone();
        change(&mut config);
        self.sim = Sim::restore(config, &self.sim.snapshot()).unwrap();
    }

    pub(crate) fn reply(&mut self, owner: &str, operation: &str, arguments: Value) -> Reply {
        self.sim.perform(self.now, &request(owner, operation, arguments))
    }

    pub(crate) fn call(&mut self, owner: &str, operation: &str, arguments: Value) -> Answer {
        self.reply(owner, operation, arguments).answer.expect("an answer")
    }

    pub(crate) fn code(&mut self, owner: &str, operation: &str, arguments: Value) -> Code {
        self.call(owner, operation, arguments)
            .expect_err("a failure")
            .code
    }

    pub(crate) fn clone_vm(&mut self, owner: &str, name: &str) -> Answer {
        self.call(owner, "vm.clone", clone_arguments(owner, name))
    }

    /// Starts a task and waits until it has ended.
    pub(crate) fn run(&mut self, owner: &str, operation: &str, arguments: Value) -> Value {
        let answer = self.call(owner, operation, arguments).expect("a task");
        self.now += 11_000;
        self.call(owner, "task.get", json!({"id": answer["task"]}))
            .expect("its record")
    }

    /// Creates a VM of this owner, named as its owner, turned off.
    pub(crate) fn vm(&mut self, owner: &str) -> Value {
        let task = self.run(owner, "vm.clone", clone_arguments(owner, owner));
        assert_eq!(task["state"], "success", "{task}");
        json!({"id": task["vm"]})
    }

    /// The answer to the creation of a machine.
    pub(crate) fn machine(&mut self, owner: &str, name: &str) -> Value {
        self.call(owner, "machine.create", json!({"name": name}))
            .expect("a machine")
    }

    /// Adds a machine to a pool and installs its agent with these initial versions. Returns its id.
    pub(crate) fn member(&mut self, owner: &str, name: &str, seed: Value) -> Value {
        let pools = json!({"pools": [{"pool": "w", "tier": "worker"}]});
        self.call(owner, "pool.ensure", pools).expect("pools");
        let arguments = json!({"name": name, "pool": "w", "tier": "worker"});
        let id = self
            .call(owner, "pool.add-machine", arguments)
            .expect("a machine")["id"]
            .clone();
        self.now += 20_000;
        let task = self.run(owner, "agent.install", json!({"machine": id, "versions": seed}));
        assert_eq!(task["state"], "success", "{task}");
        id
    }

    /// Adds a prepared machine to a pool. Returns its id.
    pub(crate) fn prepared(&mut self, owner: &str, name: &str) -> Value {
        let id = self.member(owner, name, json!({}));
        let node = format!("node-{name}");
        self.call("", "node.initialized", json!({"node": node}))
            .expect("an agent");
        id
    }

    /// Adds a machine that has created its owner's cluster. Returns its id.
    pub(crate) fn first_node(&mut self, owner: &str, name: &str) -> Value {
        let id = self.prepared(owner, name);
        let labels = json!({"pool": "w"});
        let task = self.run(owner, "kubeadm.init", json!({"machine": id, "labels": labels}));
        assert_eq!(task["state"], "success", "{task}");
        id
    }

    /// The only node.
    pub(crate) fn node(&mut self) -> NodeView {
        let nodes = self.sim.nodes(self.now);
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        nodes.into_iter().next().unwrap()
    }

    pub(crate) fn entry(&self, name: &str) -> PendingEntry {
        pending("vm.clone", name, &format!("key-{name}"), self.now)
    }

    /// A pending entry of the owner `u`.
    pub(crate) fn entry_of(&self, operation: &str, name: &str) -> PendingEntry {
        PendingEntry {
            operation: operation.to_owned(),
            key: "key-u".to_owned(),
            ..self.entry(name)
        }
    }

    pub(crate) fn resolve(&mut self, owner: &str, entry: &PendingEntry) -> Resolution {
        self.sim.resolve(self.now, &session(owner), entry)
    }
}

/// A pending entry that was written at this time.
pub(crate) fn pending(operation: &str, intent: &str, key: &str, since: u64) -> PendingEntry {
    PendingEntry {
        operation: operation.to_owned(),
        service: "vm@1".to_owned(),
        intent: intent.to_owned(),
        key: key.to_owned(),
        stamp: 1,
        place: vec!["sim".to_owned()],
        principal: "host".to_owned(),
        since: Unix(since),
        waited: Duration::ZERO,
        resolved: None,
    }
}

pub(crate) fn rule(operation: &str, then: Trouble) -> FaultRule {
    FaultRule::new(operation, then)
}

pub(crate) fn with(rules: impl IntoIterator<Item = FaultRule>) -> SimConfig {
    SimConfig {
        faults: rules.into_iter().collect(),
        ..plain()
    }
}

pub(crate) fn done(answer: Value) -> Resolution {
    Resolution::Done(answer.to_string().into())
}

/// Checks that a create whose request was lost becomes absent one millisecond after its result would be
/// visible to all.
pub(crate) fn absent_only_after_everybody_would_see_it(operation: &str, arguments: &Value) {
    let mut b = Bench::new(with([rule(operation, Trouble::LoseRequest)]));
    let doubted = b.entry_of(operation, text_of(arguments, "name"));
    b.reply("u", operation, arguments.clone());
    b.now += millis(b.sim.catalogue().operations[operation].visible_within);
    assert!(b.resolve("u", &doubted).is_unknown());
    b.now += 1;
    assert_eq!(b.resolve("u", &doubted), Resolution::Absent);
}

/// Checks that the result of an absent create never appears, and that the result of a create that was done
/// exists.
pub(crate) fn absent_never_followed_by_an_effect(operation: &str, arguments: &Value) {
    let (mut absent, mut done) = (0, 0);
    for seed in 0..300 {
        let late = Trouble::HappenLate(Millis(seed * 97 % 30_000));
        let often = |probability, trouble| FaultRule {
            probability: Some(probability),
            ..rule(operation, trouble)
        };
        let config = SimConfig {
            lag: Millis(seed * 31 % 10_000),
            tokens: seed % 4 == 0,
            ..with([
                often(0.4, late),
                often(0.4, Trouble::LoseAnswer),
                often(0.5, Trouble::LoseRequest),
            ])
        };
        let mut b = Bench {
            sim: Sim::new(config, seed, START),
            now: START,
        };
        let doubted = b.entry_of(operation, text_of(arguments, "name"));
        b.now += seed * 53 % (BEGINS_WITHIN + 1);
        b.reply("u", operation, arguments.clone());
        let said = loop {
            match b.resolve("u", &doubted) {
                Resolution::Unknown(_) => b.now += 700,
                said => break said,
            }
        };
        b.now += 3_600_000;
        let there = b.sim.vms(b.now).len();
        match said {
            Resolution::Absent => absent += 1 + there * 1_000,
            _ => done += there,
        }
    }
    assert!((20..1_000).contains(&absent) && done > 100, "{absent} {done}");
}

fn text_of<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().expect("a text")
}
