//! A small cloud for scenarios: images, ports, the network service's routers and their VMs, on a clock of its own.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use polity_sdk::contract::{Act, Effect, Question, Request};
use polity_sdk::test::{Answer, Ended, World};
use polity_sdk::{ActInDoubt, Code, Failure, Next, Resolution};
use serde_json::{Value, json};

/// A handle on one cloud; clones share it.
#[derive(Clone, Default)]
pub struct Neutron(Rc<RefCell<State>>);

/// All there is.
pub struct State {
    /// By id.
    pub vms: BTreeMap<String, Vm>,
    /// Changes that were asked for, by operation.
    pub changes: Vec<String>,
    /// VMs that were made.
    pub boots: u32,
    /// The router was removed from the network service.
    pub removed: bool,
    /// The images there are; none: all.
    pub images: Option<BTreeSet<String>>,
    /// Whose a port is, by its MAC address.
    pub ports: BTreeMap<String, String>,
    /// What an operation answers instead, so often.
    pub instead: Vec<(&'static str, u32, Failure)>,
    /// How long a VM takes until it answers, in milliseconds; none: for ever.
    pub boot: Option<u64>,
    /// How long a VM takes to go.
    pub stop: u64,
    /// How long a port takes to appear in a VM; none: for ever.
    pub plug: Option<u64>,
    /// The next so many configurations fail.
    pub refusals: u32,
    /// The records of tasks are lost.
    pub forgetful: bool,
    /// The request with this number is not answered any more, before or after it took effect.
    pub crash: Option<(usize, bool)>,
    requests: usize,
    tasks: BTreeMap<String, bool>,
    now: u64,
    ids: u32,
}

impl Default for State {
    fn default() -> Self {
        State {
            vms: BTreeMap::new(),
            changes: Vec::new(),
            boots: 0,
            removed: false,
            images: None,
            ports: BTreeMap::new(),
            instead: Vec::new(),
            boot: Some(5_000),
            stop: 0,
            plug: Some(2_000),
            refusals: 0,
            forgetful: false,
            crash: None,
            requests: 0,
            tasks: BTreeMap::new(),
            now: 0,
            ids: 0,
        }
    }
}

/// A VM.
#[derive(Clone, Debug)]
pub struct Vm {
    /// What it was made from.
    pub image: String,
    /// It does not answer any more.
    pub silent: bool,
    /// It has no management address.
    pub unreachable: bool,
    /// What it was told.
    pub config: Option<Value>,
    name: String,
    made: u64,
    answers: Option<u64>,
    goes: Option<u64>,
    /// As the cloud knows it.
    pub ports: Vec<Value>,
    /// As the VM shows it, from when on.
    shown: BTreeMap<String, u64>,
}

/// The host crashed in the middle of a pass.
struct Crashed;

impl Neutron {
    /// The state, to be looked at or changed.
    pub fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// The only VM.
    pub fn vm(&self) -> RefMut<'_, Vm> {
        let state = self.state();
        assert_eq!(state.vms.len(), 1, "{:?}", state.vms);
        RefMut::map(state, |state| state.vms.values_mut().next().expect("one"))
    }

    /// How often this was asked for.
    pub fn count(&self, operation: &str) -> usize {
        let state = self.state();
        state.changes.iter().filter(|change| *change == operation).count()
    }

    fn answer(&self, request: &Request) -> Option<Answer> {
        let mut state = self.state();
        let (operation, arguments, change) = match request {
            Request::Ask(ask) => match &ask.question {
                Question::Cloud(call) => (&call.operation, &call.arguments, false),
                _ => return None,
            },
            Request::Act(Act::Cloud(act)) => (&act.operation, &act.arguments, true),
            Request::Act(_) => return None,
        };
        state.requests += 1;
        if state.crash == Some((state.requests, false)) {
            std::panic::resume_unwind(Box::new(Crashed));
        }
        if change {
            state.changes.push(operation.clone());
        }
        let arguments = serde_json::from_str(arguments).expect("arguments are JSON");
        let answer = match state.instead(operation) {
            Some(failure) => Err(failure),
            None => state.perform(operation, &arguments),
        };
        if state.crash == Some((state.requests, true)) {
            std::panic::resume_unwind(Box::new(Crashed));
        }
        Some(answer.map(|json| json.to_string()))
    }
}

fn missing(what: &str) -> Failure {
    Failure::new(Code::NotFound, format!("no {what}"))
}

impl State {
    fn instead(&mut self, operation: &str) -> Option<Failure> {
        let (_, times, failure) = self
            .instead
            .iter_mut()
            .find(|(name, times, _)| *name == operation && *times > 0)?;
        *times -= 1;
        Some(failure.clone())
    }

    /// Time passes: VMs that were told to go are gone.
    fn advance(&mut self, now: u64) {
        self.now = now;
        self.vms.retain(|_, vm| vm.goes.is_none_or(|goes| goes > now));
    }

    fn perform(&mut self, operation: &str, arguments: &Value) -> Result<Value, Failure> {
        let text = |field: &str| arguments[field].as_str().unwrap_or_default().to_owned();
        let (id, now) = (text("id"), self.now);
        match operation {
            "router.resource" if self.removed => Err(missing("router")),
            "router.resource" => Ok(json!({})),
            "image.get" => match &self.images {
                Some(images) if !images.contains(&text("image")) => Err(missing("image")),
                _ => Ok(json!({})),
            },
            "port.get" => match self.ports.get(&text("mac")) {
                Some(owner) if owner != "r-1" => Err(Failure::new(Code::PermissionDenied, "another's")),
                Some(owner) => Ok(json!({"router": owner})),
                None => Ok(json!({})),
            },
            "task.get" => {
                let success = self.tasks.get(&text("id")).filter(|_| !self.forgetful);
                let success = success.ok_or_else(|| missing("task"))?;
                let state = if *success { "success" } else { "error" };
                Ok(json!({"id": id, "state": state, "error": {"fault": "Refused", "message": "no"}}))
            }
            "router.get" => {
                let name = text("name");
                let vm = match id.as_str() {
                    "" => self.vms.iter().find(|(_, vm)| vm.name == name),
                    id => self.vms.get_key_value(id),
                };
                vm.map(|(id, vm)| vm.describe(id, now))
                    .ok_or_else(|| missing("VM"))
            }
            "router.delete-ports" => {
                self.ports.retain(|_, owner| *owner != text("name"));
                Ok(json!({}))
            }
            "router.boot" => self.boot(arguments),
            _ => {
                let (plug, stop) = (self.plug, self.stop);
                let vm = self.vms.get_mut(&id).ok_or_else(|| missing("VM"))?;
                match operation {
                    "router.alive" => Ok(json!({"alive": vm.is_alive(now)})),
                    "router.delete" => {
                        vm.goes = Some(now + stop);
                        self.advance(now);
                        Ok(json!({}))
                    }
                    _ if !vm.is_alive(now) => {
                        Err(Failure::new(Code::FailedPrecondition, "it does not answer"))
                    }
                    "router.interfaces" => {
                        let shown = vm.shown.iter().filter(|(_, from)| **from <= now);
                        Ok(json!({"macs": shown.map(|(mac, _)| mac).collect::<Vec<_>>()}))
                    }
                    "router.stats" => {
                        let traffic = |mac| json!({"mac": mac, "rxBytes": 10, "txBytes": 20});
                        Ok(json!({"traffic": vm.shown.keys().map(traffic).collect::<Vec<_>>()}))
                    }
                    "config.push" => {
                        let success = self.refusals == 0;
                        self.refusals = self.refusals.saturating_sub(1);
                        if success {
                            vm.config = Some(arguments["config"].clone());
                        }
                        self.ids += 1;
                        let task = format!("task-{}", self.ids);
                        self.tasks.insert(task.clone(), success);
                        Ok(json!({"task": task}))
                    }
                    "port.attach" => {
                        let mac = text("mac");
                        vm.ports
                            .push(json!({"network": arguments["network"], "mac": mac}));
                        vm.shown
                            .insert(mac.clone(), plug.map_or(u64::MAX, |plug| now + plug));
                        self.ports.insert(mac, "r-1".to_owned());
                        Ok(json!({}))
                    }
                    "port.detach" => {
                        vm.ports.retain(|port| port["mac"] != arguments["mac"]);
                        vm.shown.remove(&text("mac"));
                        self.ports.remove(&text("mac"));
                        Ok(json!({}))
                    }
                    _ => panic!("no such operation: {operation}"),
                }
            }
        }
    }

    fn boot(&mut self, arguments: &Value) -> Result<Value, Failure> {
        let ports = arguments["ports"].as_array().expect("ports").clone();
        assert!(self.vms.is_empty(), "a second VM");
        let macs = ports
            .iter()
            .map(|port| port["mac"].as_str().expect("a MAC").to_owned());
        let shown: BTreeMap<String, u64> = macs.map(|mac| (mac, 0)).collect();
        for mac in shown.keys() {
            assert!(
                self.ports.get(mac).is_none_or(|owner| owner == "r-1"),
                "another router's port"
            );
            self.ports.insert(mac.clone(), "r-1".to_owned());
        }
        self.ids += 1;
        self.boots += 1;
        let id = format!("vm-{}", self.ids);
        let vm = Vm {
            name: arguments["name"].as_str().expect("a name").to_owned(),
            image: arguments["image"].as_str().expect("an image").to_owned(),
            silent: false,
            unreachable: false,
            config: None,
            made: self.now,
            answers: self.boot.map(|boot| self.now + boot),
            goes: None,
            ports,
            shown,
        };
        self.vms.insert(id.clone(), vm);
        Ok(json!({"id": id}))
    }
}

impl Vm {
    fn is_alive(&self, now: u64) -> bool {
        !self.silent && self.goes.is_none() && self.answers.is_some_and(|from| from <= now)
    }

    fn describe(&self, id: &str, now: u64) -> Value {
        let built = now >= self.made + 1_000;
        let status = match (self.goes, built) {
            (Some(_), _) => "DELETING",
            (None, true) => "ACTIVE",
            (None, false) => "BUILD",
        };
        let managed = built && !self.unreachable;
        json!({"id": id, "status": status, "createdAt": self.made, "managed": managed, "ports": self.ports})
    }
}

/// A router and its cloud.
pub struct Story {
    pub world: World,
    pub neutron: Neutron,
    config: Value,
}

impl Story {
    /// A router that nobody has looked at.
    pub fn new() -> Self {
        Story::with(json!({}))
    }

    /// The same, under a binding with this configuration.
    pub fn with(config: Value) -> Self {
        let object = json!({
            "apiVersion": "rug.polity.dev/v1alpha1",
            "kind": "Router",
            "metadata": {"name": "r-1", "namespace": "team", "uid": "uid-1", "generation": 1},
            "spec": {"imageUUID": "image-1", "flavor": "small", "ports": [port(1)]},
        });
        let neutron = Neutron::default();
        let world = world(object, &config, &neutron);
        Story {
            world,
            neutron,
            config,
        }
    }

    /// A router whose VM is alive and configured, and that rests.
    pub fn configured() -> Self {
        Story::configured_with(json!({}))
    }

    /// The same, under a binding with this configuration.
    pub fn configured_with(config: Value) -> Self {
        let mut story = Story::with(config);
        story.rest();
        assert_eq!(story.vm(), "C");
        story
    }

    /// One pass, and the time that it asks for.
    pub fn pass(&mut self) -> Ended {
        self.neutron.state().advance(self.world.now().unix_ms());
        let ended = self.world.pass(rug_router::reconcile);
        self.world.wait(&ended.next, Duration::from_secs(1));
        ended
    }

    /// One pass, at the end of which the machine may rest: then no time goes by.
    pub fn step(&mut self) -> String {
        self.neutron.state().advance(self.world.now().unix_ms());
        let ended = self.world.pass(rug_router::reconcile);
        if !matches!(ended.next, Next::Settled(_)) {
            self.world.wait(&ended.next, Duration::from_secs(1));
        }
        edges(&ended)
    }

    /// Passes until the machine rests; the edges in order, without those that only wait: 18 04, X10, 28 and X14.
    pub fn rest(&mut self) -> String {
        let mut told = Vec::new();
        for _ in 0..5_000 {
            self.neutron.state().advance(self.world.now().unix_ms());
            let ended = self.world.pass(rug_router::reconcile);
            told.push(edges(&ended));
            if matches!(ended.next, Next::Settled(_)) {
                let told = told.join(" ").replace("18 04 ", "");
                let waits = ["X10", "28", "X14", ""];
                let told = told.split(' ').filter(|id| !waits.contains(id));
                return told.collect::<Vec<_>>().join(" ");
            }
            self.world.wait(&ended.next, Duration::from_secs(1));
        }
        panic!("5000 passes and no rest: {}", told[told.len() - 20..].join(" "));
    }

    /// The next poll is due.
    pub fn poll(&mut self) {
        self.world.advance(Duration::from_secs(60));
    }

    /// Somebody changes the spec.
    pub fn update(&mut self, spec: Value) {
        let generation = self.object()["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        self.world
            .edit(json!({"metadata": {"generation": generation}, "spec": spec}));
    }

    /// Somebody asks for something.
    pub fn request(&mut self, name: &str, nonce: &str) {
        self.world
            .edit(json!({"metadata": {"annotations": {format!("request.polity.dev/{name}"): nonce}}}));
    }

    /// The letter of its VM.
    pub fn vm(&self) -> String {
        self.world.status()["vm"].as_str().unwrap_or("D").to_owned()
    }

    /// The router as it is stored.
    pub fn object(&self) -> Value {
        self.world.object().cloned().unwrap_or(Value::Null)
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Value {
        let conditions = self.world.status()["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .unwrap_or(Value::Null)
    }

    /// A boot is in doubt in the next pass.
    pub fn doubt(&mut self, resolution: Resolution) {
        let since = self.world.now().unix_ms();
        let (operation, intent) = ("router.boot".to_owned(), "r-1".to_owned());
        let act = ActInDoubt {
            operation,
            intent,
            since,
            resolution,
        };
        self.world.set_pending(vec![act]);
    }

    /// One pass that a crash may end. Then nothing of it is written but what the host writes ahead.
    pub fn pass_or_crash(&mut self) -> Option<Ended> {
        let stored = self.object();
        let (boots_before, known) = {
            let mut state = self.neutron.state();
            state.advance(self.world.now().unix_ms());
            (state.boots, state.changes.len())
        };
        let ended = catch_unwind(AssertUnwindSafe(|| self.world.pass(rug_router::reconcile)));
        if let Ok(ended) = ended {
            self.world.wait(&ended.next, Duration::from_secs(1));
            return Some(ended);
        }
        let now = self.world.now();
        self.neutron.state().crash = None;
        let mut stored = stored;
        let changes = self.neutron.state().changes[known..].to_vec();
        if !changes.is_empty() {
            stored["metadata"]["finalizers"] = json!(["rug.polity.dev/router"]);
        }
        self.world = world(stored, &self.config, &self.neutron);
        self.world
            .advance(now.since(self.world.now()) + Duration::from_secs(1));
        if changes.iter().any(|change| change == "router.boot") {
            let made = self.neutron.state().boots > boots_before;
            let id = self.neutron.state().vms.keys().next().cloned();
            self.doubt(match made {
                true => Resolution::Done(json!({"id": id}).to_string()),
                false => Resolution::Absent,
            });
        }
        None
    }

    /// A world with this router and the same cloud, as a host that restarts finds it.
    pub fn restarted(mut self) -> Self {
        let now = self.world.now();
        self.world = world(self.object(), &self.config, &self.neutron);
        self.world.advance(now.since(self.world.now()));
        self
    }

    /// How many requests were made so far.
    pub fn requests(&self) -> usize {
        self.neutron.state().requests
    }
}

fn world(object: Value, config: &Value, neutron: &Neutron) -> World {
    let mut world = World::new(object)
        .config(config.clone())
        .manifest(&rug_router::manifest());
    let cloud = neutron.clone();
    world.responds(move |request| cloud.answer(request));
    world
}

/// The nth port.
pub fn port(n: u32) -> Value {
    json!({"network": format!("net-{n}"), "mac": format!("fa:16:3e:00:00:{n:02}")})
}

/// The edges of a pass: `"03"`.
pub fn edges(ended: &Ended) -> String {
    let ids = ended.notes.iter().map(|id| id.trim_start_matches("RUG-"));
    ids.collect::<Vec<_>>().join(" ")
}

/// A failure that changed nothing.
pub fn failure(code: Code) -> Failure {
    Failure::new(code, "no")
}

/// A failure of which nobody knows what it changed.
pub fn lost() -> Failure {
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(Code::DeadlineExceeded, "no answer")
    }
}
