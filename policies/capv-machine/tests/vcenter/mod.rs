//! A small vCenter for scenarios: tasks take a few looks, names are unique, a clone is invisible until it ends.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use polity_sdk::contract::{Act, Effect, Question, Request};
use polity_sdk::test::Answer;
use polity_sdk::{Code, Failure};
use serde_json::{Value, json};

/// A handle on one vCenter; clones share it.
#[derive(Clone, Default)]
pub struct VCenter(Rc<RefCell<State>>);

/// All there is.
#[derive(Default)]
pub struct State {
    /// By id.
    pub vms: BTreeMap<String, Vm>,
    tasks: BTreeMap<String, Task>,
    ids: u32,
    /// Every change that was accepted, by operation.
    pub changes: Vec<String>,
    /// Nothing can be reached.
    pub unreachable: bool,
    /// The clones that follow fail with this fault.
    pub clones_fail: Option<&'static str>,
    /// The answer of the next change is lost on the way back.
    pub lose_answer: bool,
    /// Tasks are forgotten as soon as they end.
    pub forgetful: bool,
    /// VMs that run have these addresses.
    pub ips: Vec<&'static str>,
    /// Every task is in this state.
    pub odd_state: Option<&'static str>,
}

/// A VM.
#[derive(Clone, Default)]
pub struct Vm {
    /// Its name.
    pub name: String,
    uuid: String,
    metadata: Option<String>,
    /// `on`, `off` or `suspended`.
    pub power: String,
}

struct Task {
    kind: String,
    /// How often it is still found running.
    looks: u32,
    arguments: Value,
    vm: Option<String>,
    error: Option<Value>,
    ended: bool,
}

/// How often a task is found running before it ends.
const LOOKS: u32 = 2;

impl VCenter {
    /// The state, to be looked at or changed.
    pub fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// Answers a request of the policy.
    pub fn answer(&self, request: &Request) -> Option<Answer> {
        let mut state = self.state();
        if state.unreachable {
            return Some(Err(Failure::new(Code::Unavailable, "no route to vCenter")));
        }
        let (operation, arguments) = match request {
            Request::Ask(ask) => match &ask.question {
                Question::Cloud(call) => (&call.operation, &call.arguments),
                _ => return None,
            },
            Request::Act(Act::Cloud(act)) => (&act.operation, &act.arguments),
            Request::Act(_) => return None,
        };
        let arguments = serde_json::from_str(arguments).unwrap();
        let answer = match request {
            Request::Ask(_) => state.look(operation, &arguments),
            Request::Act(_) => state.change(operation, arguments),
        };
        Some(answer.map(|json| json.to_string()))
    }

    /// How many clones were accepted.
    pub fn clones(&self) -> usize {
        self.state()
            .changes
            .iter()
            .filter(|change| *change == "vm.clone")
            .count()
    }

    /// What a clone in doubt is settled with: its task, or its VM once the task is forgotten.
    pub fn settle_clone(&self) -> Value {
        let state = self.state();
        if let Some((id, _)) = state.tasks.iter().find(|(_, task)| task.kind == "clone") {
            return json!({"task": id});
        }
        json!({"vm": state.vms.keys().next().expect("a clone was performed")})
    }
}

impl State {
    fn look(&mut self, operation: &str, arguments: &Value) -> Result<Value, Failure> {
        let id = arguments["id"].as_str().unwrap_or_default();
        let missing = || Failure::new(Code::NotFound, format!("{operation}: not found"));
        let described = |(id, vm): (&String, &Vm)| json!({"id": id, "name": vm.name, "instanceUuid": vm.uuid, "biosUuid": format!("bios-{id}")});
        match operation {
            "task.get" => self.task(id).ok_or_else(missing),
            "vm.find" => {
                let uuid = arguments["instanceUuid"].as_str().unwrap();
                self.vms
                    .iter()
                    .find(|(_, vm)| vm.uuid == uuid)
                    .map(described)
                    .ok_or_else(missing)
            }
            "vm.get" => self.vms.get_key_value(id).map(described).ok_or_else(missing),
            "vm.metadata" => self
                .vms
                .get(id)
                .map(|vm| json!({"metadata": vm.metadata}))
                .ok_or_else(missing),
            "vm.power" => self
                .vms
                .get(id)
                .map(|vm| json!({"state": vm.power}))
                .ok_or_else(missing),
            "vm.nics" => {
                let vm = self.vms.get(id).ok_or_else(missing)?;
                let ips = if vm.power == "on" { &self.ips[..] } else { &[] };
                let mac = format!("00:50:56:00:00:{}", id.trim_start_matches("vm-"));
                Ok(json!({"nics": [{"network": "prod", "mac": mac, "connected": true, "ips": ips}]}))
            }
            _ => panic!("no such operation: {operation}"),
        }
    }

    fn task(&mut self, id: &str) -> Option<Value> {
        let odd = self.odd_state;
        let task = self.tasks.get_mut(id)?;
        let state = match (odd, task.looks, &task.error) {
            (Some(odd), ..) => odd,
            (None, 0, None) => "success",
            (None, 0, Some(_)) => "error",
            _ => "running",
        };
        Some(json!({"id": id, "state": state, "kind": task.kind, "vm": task.vm, "error": task.error}))
    }

    fn change(&mut self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        self.changes.push(operation.to_owned());
        self.ids += 1;
        let id = format!("task-{:02}", self.ids);
        let kind = operation.trim_start_matches("vm.").to_owned();
        let task = Task {
            kind,
            looks: LOOKS,
            arguments,
            vm: None,
            error: None,
            ended: false,
        };
        self.tasks.insert(id.clone(), task);
        if std::mem::take(&mut self.lose_answer) {
            let failure = Failure::new(Code::DeadlineExceeded, "no answer");
            return Err(Failure {
                effect: Effect::Unknown,
                ..failure
            });
        }
        Ok(json!({"task": id}))
    }

    /// Time passes: tasks that have run long enough take effect.
    pub fn tick(&mut self) {
        for (id, mut task) in std::mem::take(&mut self.tasks) {
            task.looks = task.looks.saturating_sub(1);
            if task.looks == 0 && !task.ended {
                task.ended = true;
                self.finish(&mut task);
            }
            if !(task.ended && self.forgetful) {
                self.tasks.insert(id, task);
            }
        }
    }

    fn finish(&mut self, task: &mut Task) {
        let id = task.arguments["id"].as_str().unwrap_or_default().to_owned();
        match task.kind.as_str() {
            "clone" => self.finish_clone(task),
            "destroy" => _ = self.vms.remove(&id),
            kind => {
                let Some(vm) = self.vms.get_mut(&id) else { return };
                let requested = match kind {
                    "reconfigure" => {
                        vm.metadata = task.arguments["metadata"].as_str().map(str::to_owned);
                        return;
                    }
                    "power-on" => "on",
                    _ => "off",
                };
                if vm.power == requested {
                    task.error = Some(json!({
                        "fault": "InvalidPowerState", "message": "", "existing": requested, "requested": requested,
                    }));
                }
                requested.clone_into(&mut vm.power);
            }
        }
    }

    fn finish_clone(&mut self, task: &mut Task) {
        let name = task.arguments["name"].as_str().unwrap().to_owned();
        if let Some(fault) = self.clones_fail {
            task.error = Some(json!({"fault": fault, "message": "no"}));
        } else if self.vms.values().any(|vm| vm.name == name) {
            task.error = Some(json!({"fault": "DuplicateName", "message": name}));
        } else {
            self.ids += 1;
            let id = format!("vm-{:02}", self.ids);
            let uuid = task.arguments["instanceUuid"].as_str().unwrap().to_owned();
            self.vms.insert(
                id.clone(),
                Vm {
                    name,
                    uuid,
                    metadata: None,
                    power: "off".into(),
                },
            );
            task.vm = Some(id);
        }
    }
}
