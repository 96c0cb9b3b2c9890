//! Walks through every operation of the catalogue by chance: a restart at any moment changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use polity_core::catalogue::OperationEffect;

use crate::harness::*;
use crate::kernel::draw::draw;
use crate::kernel::kept::Record;

/// Calls, views and what becomes of them, from a seed.
struct Walk {
    seed: u64,
    rolled: u64,
    now: u64,
    owner: &'static str,
    /// The latest tasks, the newest last.
    tasks: Vec<String>,
    said: Vec<String>,
    /// The operations that have succeeded.
    done: BTreeSet<String>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Walk {
            seed,
            rolled: 0,
            now: START,
            owner: "a",
            tasks: vec!["task-1".to_owned()],
            said: Vec::new(),
            done: BTreeSet::new(),
        }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.rolled += 1;
        draw(self.seed, "walk", "", self.rolled) % sides
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let nth = self.roll(all.len().max(1) as u64);
        all.get(nth as usize).cloned()
    }

    /// Chance has it that little is done twice at the same place: few names, few ports, one pool.
    fn argument(&mut self, sim: &mut Sim, operation: &str, field: &str) -> Value {
        let (service, nth) = (operation.split('.').next().unwrap_or_default(), self.roll(3));
        match field {
            "id" if operation == "task.get" => {
                let newest: Vec<String> = self.tasks.iter().rev().take(4).cloned().collect();
                json!(self.one_of(&newest))
            }
            "id" if ["router", "port", "config"].contains(&service) => {
                let own = sim.routers(self.now).into_iter().map(|router| router.id);
                json!(self.one_of(&own.collect::<Vec<_>>()).unwrap_or("vm-1".to_owned()))
            }
            "id" | "providerID" => {
                let own = sim.vms(self.now).into_iter().map(|vm| vm.id);
                let id = self.one_of(&own.collect::<Vec<_>>()).unwrap_or("vm-1".to_owned());
                json!(if field == "id" { id } else { format!("sim:///{id}") })
            }
            "machine" | "node" => {
                let all = sim.pool_machines(self.now).into_iter();
                let all = all.map(|m| if field == "node" { m.node } else { m.id });
                json!(self.one_of(&all.collect::<Vec<_>>()).unwrap_or("vm-1".to_owned()))
            }
            "name" => json!(format!("{service}{nth}")),
            "instanceUuid" => json!(self.owner),
            "owner" => json!(self.owner),
            "mac" => json!(format!("fa:16:3e:00:00:0{nth}")),
            "ports" => json!([{"network": "net", "mac": format!("fa:16:3e:00:00:0{nth}")}]),
            "pools" => json!([{"pool": "w", "tier": "worker"}]),
            "pool" => json!("w"),
            "tier" | "role" => json!("worker"),
            "userData" | "bootstrapToken" | "token" | "certificateKey" => {
                json!({"$secret": {"name": self.owner, "key": nth.to_string()}})
            }
            "versions" => json!({"linux-image-amd64": nth.to_string()}),
            "packages" => json!(["linux-image-amd64"]),
            "networks" => json!(["net"]),
            "taints" => json!([]),
            "volumes" => json!([{"csi": {"volumeHandle": "v"}}]),
            "labels" | "config" | "providerSpec" => json!({}),
            "cpus" | "coresPerSocket" | "memoryMiB" | "diskGiB" => json!(nth + 1),
            _ => json!("text"),
        }
    }

    fn request(&mut self, sim: &mut Sim) -> CloudRequest {
        let catalogue = sim.catalogue().clone();
        let mut names: Vec<&str> = catalogue.operations.keys().map(String::as_str).collect();
        // A machine joins only after all of these, in this order; and a port is there only while its router is.
        let rare = [
            "pool.add-machine",
            "agent.install",
            "node.initialized",
            "kubeadm.init",
            "kubeadm.join",
            "port.detach",
        ];
        names.extend(rare.repeat(3));
        let name = self.one_of(&names).expect("there are operations").to_owned();
        self.owner = ["a", "b"][self.roll(2) as usize];
        let operation = &catalogue.operations[&name];
        let required = operation.arguments["required"].as_array();
        let required: Vec<&Value> = required.into_iter().flatten().collect();
        let mut arguments = json!({});
        for field in operation.arguments["properties"]
            .as_object()
            .into_iter()
            .flatten()
        {
            if required.contains(&&json!(field.0)) || self.roll(2) == 0 {
                arguments[field.0] = self.argument(sim, &name, field.0);
            }
        }
        let mut request = request(self.owner, &name, arguments);
        request.key = (operation.effect == OperationEffect::Create).then(|| format!("key-{}", self.roll(40)));
        if name == "node.reboot" {
            let work = request_of(&request, "node.work");
            let work = sim.perform(self.now, &work).answer;
            let boot = work.and_then(Result::ok).map(|work| work["bootId"].clone());
            request.arguments["bootId"] = boot.unwrap_or(json!("none"));
        }
        request
    }

    /// A call, some time, and everything there is to be seen.
    fn step(&mut self, sim: &mut Sim) {
        self.now += self.roll(12_000);
        let request = self.request(sim);
        let reply = sim.perform(self.now, &request);
        if let Some(Ok(answer)) = &reply.answer {
            self.done.insert(request.operation.clone());
            self.tasks.extend(answer["task"].as_str().map(str::to_owned));
        }
        self.said.push(format!("{request:?}: {reply:?}"));
        for node in sim.nodes(self.now) {
            sim.note_registered(&node.provider_id);
        }
        let creates = ["vm.clone", "machine.create", "router.boot", "pool.add-machine"];
        let operation = creates[self.roll(4) as usize];
        let (intent, key) = (
            format!("machine{}", self.roll(3)),
            format!("key-{}", self.roll(40)),
        );
        let entry = pending(operation, &intent, &key, self.now - self.roll(60_000));
        let settled = sim.resolve(self.now, &session(self.owner), &entry);
        let nodes = sim.nodes(self.now);
        let there = (
            sim.vms(self.now),
            sim.routers(self.now),
            sim.pool_machines(self.now),
        );
        let next = sim.next_event_after(self.now);
        self.said.push(format!(
            "{settled:?} {nodes:?} {there:?} {:?} {next:?}",
            sim.router_ports()
        ));
    }
}

fn request_of(request: &CloudRequest, operation: &str) -> CloudRequest {
    CloudRequest {
        operation: operation.to_owned(),
        arguments: json!({"node": request.arguments["node"]}),
        ..request.clone()
    }
}

/// Much goes wrong, and some of what does not would otherwise never be tried.
fn config(seed: u64) -> SimConfig {
    let at = |nth: u64, below: u64| Millis(draw(seed, "config", "", nth) % below);
    let often = |operation: &str, then: Trouble| FaultRule {
        probability: Some(0.05),
        ..rule(operation, then)
    };
    let event = |nth: u64, vm: &str, does: Intervention| WorldEvent {
        vm: vm.to_owned(),
        at: at(nth, 600_000),
        after_power_on: None,
        until: None,
        does,
    };
    SimConfig {
        faults: vec![
            often("*", Trouble::LoseAnswer),
            often("*", Trouble::HappenLate(at(1, 20_000))),
            often("*", Trouble::TaskTakes(at(2, 90_000))),
            often("machine.*", Trouble::JoinsAfter(at(3, 90_000))),
            FaultRule {
                count: Some(2),
                each: true,
                ..rule("router.boot", Trouble::NeverBoots)
            },
        ],
        events: vec![
            event(4, "machine0", Intervention::Leave),
            event(5, "machine0", Intervention::Recover),
            event(6, "machine1", Intervention::FallSilent),
            event(7, "pool0", Intervention::PowerOff),
            event(8, "pool0", Intervention::PowerOn),
            event(9, "router1", Intervention::Withdraw),
            event(10, "vm1", Intervention::Vanish),
        ],
        api_server_down: vec![Span {
            from: at(11, 300_000),
            until: Millis(300_000),
        }],
        tokens: seed.is_multiple_of(3),
        lag: at(12, 8_000),
        tasks: TaskDurations::default(),
        answers: Between::exactly(10),
        ..plain()
    }
}

const STEPS: u64 = 250;

#[test]
fn a_restart_at_any_moment_of_a_walk_through_everything_changes_nothing() {
    let mut done = BTreeSet::new();
    for seed in 0..24 {
        let config = config(seed);
        let mut unbroken = (Sim::new(config.clone(), seed, START), Walk::new(seed));
        let mut broken = (Sim::new(config.clone(), seed, START), Walk::new(seed));
        for step in 0..STEPS {
            unbroken.1.step(&mut unbroken.0);
            broken.1.step(&mut broken.0);
            let last = step as usize * 2;
            assert_eq!(
                broken.1.said[last..],
                unbroken.1.said[last..],
                "seed {seed}, step {step}"
            );
            broken.0 = Sim::restore(config.clone(), &broken.0.snapshot()).unwrap();
        }
        assert_eq!(broken.0.snapshot(), unbroken.0.snapshot(), "seed {seed}");
        done.append(&mut unbroken.1.done);
    }
    let all = Sim::new(plain(), 0, START).catalogue().operations.clone();
    let never: Vec<_> = all.keys().filter(|name| !done.contains(*name)).collect();
    assert!(never.is_empty(), "the walks never did {never:?}");
}

#[test]
fn what_a_database_holds_after_a_walk_through_everything_is_the_cloud() {
    for seed in 0..6 {
        let config = config(seed);
        let (mut sim, mut walk) = (Sim::new(config.clone(), seed, START), Walk::new(seed));
        let mut records = BTreeMap::new();
        sim.note_changes();
        for _ in 0..STEPS {
            walk.step(&mut sim);
            for change in sim.changes() {
                let key = (change.key.table.to_owned(), change.key.key);
                match change.value {
                    Some(value) => drop(records.insert(key, value)),
                    None => drop(records.remove(&key)),
                }
            }
        }
        let records = records.iter();
        let records = records.map(|((table, key), value)| (table.clone(), key.clone(), value.clone()));
        let records: Vec<Record> = records.collect();
        let mut restored = Sim::from_records(config, &records).unwrap().unwrap();
        assert_eq!(restored.snapshot(), sim.snapshot(), "seed {seed}");
    }
}
