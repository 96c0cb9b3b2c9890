//! A small garden for scenarios: a driver that makes VMs, and a cluster whose nodes join when a test says so.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use polity_sdk::contract::{Act, Question, Request};
use polity_sdk::test::{Answer, Cluster, Ended, World};
use polity_sdk::{ActInDoubt, Code, Failure, Next, Resolution, RetryClass};
use serde_json::{Value, json};

/// What all machines of a test share. Clones are handles on the same.
#[derive(Clone, Default)]
pub struct Garden {
    /// Nodes, classes, pods.
    pub cluster: Cluster,
    driver: Rc<RefCell<Driver>>,
}

/// The driver and what it was told.
#[derive(Default)]
pub struct Driver {
    /// The provider's ids by machine.
    pub vms: BTreeMap<String, String>,
    /// Changes, in order.
    pub changes: Vec<String>,
    /// What an operation answers instead: the first that is left for it.
    pub instead: Vec<(&'static str, Answer)>,
    /// What an operation answers instead, every time.
    pub always: BTreeMap<&'static str, Answer>,
    /// Permits that somebody else holds.
    pub busy: bool,
    made: u32,
}

/// A failure of the driver.
pub fn failure(code: Code) -> Answer {
    Err(Failure::new(code, "no"))
}

impl Garden {
    /// A garden with a class and its Secret, and a MachineSafety that is not frozen.
    pub fn new() -> Self {
        let garden = Garden::default();
        garden.cluster.put(json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": "small", "namespace": "shoot"},
            "spec": {"providerSpec": {"size": "s"}, "secretRef": {"name": "user-data"}},
        }));
        garden.cluster.put(json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety", "metadata": {"name": "default"},
        }));
        garden
    }

    /// The driver, to be looked at or changed.
    pub fn driver(&self) -> RefMut<'_, Driver> {
        self.driver.borrow_mut()
    }

    /// A new machine.
    pub fn plant(&self, name: &str) -> Story {
        self.plant_with(name, json!({}))
    }

    /// A new machine under a binding with this configuration.
    pub fn plant_with(&self, name: &str, config: Value) -> Story {
        let machine = json!({
            "apiVersion": "mcm.polity.dev/v1alpha1",
            "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "shoot", "uid": format!("uid-{name}"),
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"name": "workers"},
            },
            "spec": {
                "class": {"kind": "MachineClass", "name": "small"},
                "nodeTemplate": {"metadata": {"labels": {"pool": "a"}}},
            },
        });
        let mut world = World::new(machine)
            .config(config)
            .manifest(&mcm_machine::manifest());
        world.join(&self.cluster);
        let garden = self.clone();
        world.responds(move |request| garden.answer(request));
        let garden = self.clone();
        Story {
            world,
            garden,
            name: name.to_owned(),
        }
    }

    fn answer(&self, request: &Request) -> Option<Answer> {
        let mut driver = self.driver();
        let (operation, arguments) = match request {
            Request::Ask(ask) => match &ask.question {
                Question::Cloud(call) => (&call.operation, &call.arguments),
                Question::Secret(_) => {
                    return Some(Ok(
                        json!({"exists": true, "keys": ["userData"], "digest": "d"}).to_string()
                    ));
                }
                Question::Lock(_) => {
                    return Some(Ok(json!(if driver.busy { "busy" } else { "held" }).to_string()));
                }
                _ => return None,
            },
            Request::Act(Act::Cloud(act)) => (&act.operation, &act.arguments),
            Request::Act(Act::Mint(_)) => {
                return Some(Ok(
                    json!({"$secret": {"name": "token-1", "key": "token"}}).to_string()
                ));
            }
            Request::Act(Act::Revoke(_)) => {
                driver.changes.push("revoke".to_owned());
                return Some(Ok("{}".to_owned()));
            }
            Request::Act(_) => return None,
        };
        if let Some(at) = driver.instead.iter().position(|(name, _)| name == operation) {
            return Some(driver.instead.remove(at).1);
        }
        if let Some(answer) = driver.always.get(operation.as_str()) {
            return Some(answer.clone());
        }
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let name = arguments["name"].as_str().unwrap_or_default().to_owned();
        Some(driver.perform(operation, &name))
    }

    /// The node of a machine joins, or says how it is.
    pub fn node(&self, name: &str, ready: &str) {
        let id = self.driver().vms.get(name).cloned();
        let mut node = self
            .cluster
            .get("Node", &format!("node-{name}"))
            .unwrap_or_else(|| {
                json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": format!("node-{name}")}, "spec": {"providerID": id},
                })
            });
        node["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
        self.cluster.put(node);
    }
}

impl Driver {
    fn perform(&mut self, operation: &str, name: &str) -> Answer {
        let vm = |id: &String| json!({"providerID": id, "nodeName": format!("node-{name}")}).to_string();
        let missing = || Failure::new(Code::NotFound, "no such VM");
        if operation != "machine.status" {
            self.changes.push(format!("{operation} {name}"));
        }
        match operation {
            "machine.status" => self.vms.get(name).map(vm).ok_or_else(missing),
            "machine.create" => {
                self.made += 1;
                let id = format!("sim:///vm-{}", self.made);
                let answer = vm(&id);
                self.vms.insert(name.to_owned(), id);
                Ok(answer)
            }
            "machine.delete" => self.vms.remove(name).map(|_| "{}".to_owned()).ok_or_else(missing),
            _ => panic!("no such operation: {operation}"),
        }
    }
}

/// A machine and its garden.
pub struct Story {
    /// The machine's world.
    pub world: World,
    garden: Garden,
    name: String,
}

impl Story {
    /// One pass, and the time that it asks for; its siblings see what it has written.
    pub fn pass(&mut self) -> Ended {
        self.garden.cluster.put(self.object());
        let ended = self.world.pass(mcm_machine::reconcile);
        let wait = match &ended.next {
            Next::Retry(retry) => {
                let asked = retry.failure.as_ref().and_then(|failure| failure.retry_after);
                let period = match retry.class {
                    RetryClass::Conflict => 200,
                    RetryClass::Short => 5_000,
                    RetryClass::Medium => 180_000,
                    RetryClass::Long => 600_000,
                };
                Duration::from_millis(period.max(asked.unwrap_or(0)))
            }
            _ => Duration::ZERO,
        };
        self.world.wait(&ended.next, wait);
        match self.world.object() {
            Some(object) => self.garden.cluster.put(object),
            None => self.garden.cluster.remove("Machine", &self.name),
        }
        ended
    }

    /// One pass; the edges it took but for those of every pass, and how long it waits: `"R10 R12 Short"`.
    pub fn step(&mut self) -> String {
        told(&self.pass())
    }

    /// Passes until one settles.
    pub fn settle(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..60 {
            let ended = self.pass();
            all.push(told(&ended));
            if matches!(ended.next, Next::Settled(_)) {
                return all;
            }
        }
        panic!("60 passes and not settled: {all:#?}");
    }

    /// Passes until the machine waits for its node.
    pub fn pending(mut self) -> Story {
        while self.phase() != "Pending" {
            self.pass();
        }
        self
    }

    /// Passes until the machine is running, its node joined.
    pub fn running(self) -> Story {
        let mut story = self.pending();
        story.garden.node(&story.name, "True");
        story.settle();
        assert_eq!(story.phase(), "Running");
        story
    }

    /// The phase; empty before the first.
    pub fn phase(&self) -> String {
        let phase = &self.world.status()["currentStatus"]["phase"];
        phase.as_str().unwrap_or_default().to_owned()
    }

    /// The machine as it is stored.
    pub fn object(&self) -> Value {
        self.world.object().cloned().unwrap_or(Value::Null)
    }

    /// The creation is in doubt in the next pass.
    pub fn doubt(&mut self, resolution: Resolution) {
        let (operation, intent) = ("machine.create".into(), self.name.clone());
        let since = self.world.now().unix_ms();
        self.world.set_pending(vec![ActInDoubt {
            operation,
            intent,
            since,
            resolution,
        }]);
    }
}

/// The notes without what every pass of its flow has, and what comes next.
pub fn told(ended: &Ended) -> String {
    const USUAL: [&str; 17] = [
        "R02", "R03", "R06", "R07", "R08", "R09", "R11", "R18", "R19", "R20", "R21", "R22", "D01", "D04",
        "D08", "D11", "R24x",
    ];
    let ids = ended.notes.iter().map(|id| id.trim_start_matches("MCM-"));
    let mut told: Vec<String> = ids.filter(|id| !USUAL.contains(id)).map(str::to_owned).collect();
    told.push(match &ended.next {
        Next::Settled(_) => "settled".to_owned(),
        Next::After(ms) => format!("after {} s", ms / 1000),
        Next::Retry(retry) => format!("{:?}", retry.class)
            .trim_start_matches("RetryClass::")
            .to_owned(),
    });
    told.join(" ")
}
