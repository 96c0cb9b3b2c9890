//! The tables of cases, edge by edge: a router, what is true of the cloud, and what the policy does.
//!
//! They are data. Two drivers run them and must find the same: the tests of this crate run the policy natively, those
//! of the host as a component in the sandbox. [`each_case!`](crate::each_case) makes a test of each case.

/// Declares the cases of one part of the drawing, and the macro that makes a test of each.
macro_rules! cases {
    ($dollar:tt $each:ident $part:ident $($name:ident: $case:expr;)+) => {
        $(
            #[doc = concat!("Case `", stringify!($name), "`.")]
            pub fn $name() -> $crate::cases::Case {
                $case
            }
        )+

        /// Makes a test of each case of one part. See [`each_case!`](crate::each_case).
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $each {
            ($dollar driver:path) => {
                $(
                    #[test]
                    fn $name() {
                        $dollar driver($dollar crate::cases::$part::$name());
                    }
                )+
            };
        }

        /// Every case by name.
        pub fn all() -> Vec<(&'static str, $crate::cases::Case)> {
            vec![$((stringify!($name), $name())),+]
        }
    };
}

pub mod booting;
pub mod choosing;
pub mod configuring;
pub mod events;
pub mod living;
pub mod plugging;
pub mod stopping;

use polity_sdk::contract::{Effect, Pass, Step};
use polity_sdk::prelude::*;
use polity_sdk::test::{Ended, World, describe};
use polity_sdk::{ActInDoubt, Doubt};
use serde_json::{Value, json};

/// Makes a test of each case, which calls this function with it.
#[macro_export]
macro_rules! each_case {
    ($driver:path) => {
        $crate::each_choosing_case!($driver);
        $crate::each_living_case!($driver);
        $crate::each_booting_case!($driver);
        $crate::each_configuring_case!($driver);
        $crate::each_plugging_case!($driver);
        $crate::each_stopping_case!($driver);
        $crate::each_events_case!($driver);
    };
}

/// Every case by name.
pub fn all() -> Vec<(&'static str, Case)> {
    [
        choosing::all(),
        living::all(),
        booting::all(),
        configuring::all(),
        plugging::all(),
        stopping::all(),
        events::all(),
    ]
    .concat()
}

/// One pass.
#[derive(Clone, Debug)]
pub struct Case {
    object: Value,
    config: Value,
    in_doubt: Option<Doubt>,
    /// Requests and what they are answered with: the first whose beginning fits.
    answers: Vec<(&'static str, Result<Value, Failure>)>,
    acts: Vec<String>,
    notes: Vec<String>,
    /// What is written of the status; null erases.
    written: Value,
    /// The finalizer is let go of.
    released: bool,
    events: Vec<&'static str>,
    next: Next,
}

impl Case {
    /// Runs the pass with a policy that is given as its steps.
    pub fn run(&self, step: impl FnMut(Pass) -> Step) -> Ended {
        let mut world = World::new(&self.object).config(self.config.clone());
        if let Some(state) = &self.in_doubt {
            world.set_pending(vec![ActInDoubt {
                operation: "router.boot".to_owned(),
                intent: "r-1".to_owned(),
                since: NOW_MS - 90_000,
                state: state.clone(),
            }]);
        }
        let answers = self.answers.clone();
        world.responds(move |request| {
            let line = describe(request);
            let (_, answer) = answers.iter().find(|(begin, _)| line.starts_with(begin))?;
            Some(answer.clone().map(|json| json.to_string()))
        });
        world.pass_with(step)
    }

    /// Requires that the pass did what the table says, and nothing else.
    ///
    /// # Panics
    /// If it did not.
    pub fn check(&self, ended: &Ended) {
        assert_eq!(ended.notes, self.notes, "notes");
        assert_eq!(ended.acts(), self.acts, "acts");
        assert_eq!(ended.patch, self.patch(), "patch");
        let events: Vec<&str> = ended.events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(events, self.events, "events");
        assert_eq!(ended.next, self.next, "next");
    }

    /// The edges that the case says are taken.
    pub fn edges(&self) -> &[String] {
        &self.notes
    }

    fn patch(&self) -> Option<Value> {
        let mut patch = json!({});
        if self.written != json!({}) {
            patch["status"] = self.written.clone();
        }
        if self.released {
            patch["metadata"] = json!({"finalizers": []});
        }
        (patch != json!({})).then_some(patch)
    }

    fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    fn in_doubt(mut self, state: Doubt) -> Self {
        self.in_doubt = Some(state);
        self
    }

    /// The status has these fields as well.
    fn with(mut self, fields: Value) -> Self {
        merge(&mut self.object["status"], fields);
        self
    }

    fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.object);
        self
    }

    /// The beginning of a request and what it is answered with.
    fn answers(mut self, request: &'static str, answer: Value) -> Self {
        self.answers.insert(0, (request, Ok(answer)));
        self
    }

    fn fails(mut self, request: &'static str, code: Code) -> Self {
        self.answers.insert(0, (request, Err(Failure::new(code, "no"))));
        self
    }

    /// A request whose answer is lost.
    fn loses(mut self, request: &'static str) -> Self {
        let failure = Failure::new(Code::DeadlineExceeded, "no answer");
        let effect = Effect::Unknown;
        self.answers
            .insert(0, (request, Err(Failure { effect, ..failure })));
        self
    }

    fn lacks(self, request: &'static str) -> Self {
        self.fails(request, Code::NotFound)
    }

    fn acts<const N: usize>(mut self, acts: [&str; N]) -> Self {
        self.acts = acts.map(str::to_owned).to_vec();
        self
    }

    /// `"02"` means RUG-02.
    fn notes(mut self, ids: &str) -> Self {
        self.notes = ids.split_whitespace().map(|id| format!("RUG-{id}")).collect();
        self
    }

    /// An edge is taken to this state, which is executed at once.
    fn takes(self, id: &str, state: &str) -> Self {
        let stays = self.object["status"]["machineState"] == state;
        let case = self.notes(id).next(Next::After(0));
        if stays {
            case
        } else {
            case.writes(json!({"machineState": state}))
        }
    }

    /// An edge is taken to this state, which is executed after a second.
    fn takes_slowly(self, id: &str, state: &str) -> Self {
        self.takes(id, state).next(Next::After(1_000))
    }

    /// An edge is taken to where the machine rests until the next poll.
    fn rests(self, id: &str) -> Self {
        self.takes(id, "CALC_ACTION")
            .writes(json!({"nextPoll": IN_A_MINUTE}))
            .next(Next::Settled(Some(60_000)))
    }

    fn writes(mut self, fields: Value) -> Self {
        let written = self.written.as_object_mut().expect("an object");
        for (field, value) in fields.as_object().expect("an object") {
            written.insert(field.clone(), value.clone());
        }
        self
    }

    /// What is believed of the VM from now on, and what everybody is told of it.
    fn vm(self, letter: &str) -> Self {
        let (neutron, _) = told_of(letter);
        let before = self.object["status"].clone();
        let mut case = self;
        if before["vm"] != letter {
            case = case.writes(json!({"vm": letter}));
        }
        if before["neutronStatus"] != neutron {
            case = case.writes(json!({"neutronStatus": neutron}));
        }
        case.says(ready(letter))
    }

    /// The condition `Ready`, if it is another one than before.
    fn says(self, ready: Value) -> Self {
        let before = &self.object["status"]["conditions"][0];
        let mut ready = ready;
        if before["status"] == ready["status"] {
            ready["lastTransitionTime"] = before["lastTransitionTime"].clone();
        }
        match *before == ready {
            true => self,
            false => self.writes(json!({"conditions": [ready]})),
        }
    }

    /// Why the router is not ready.
    fn explains(self, reason: &str, message: &str) -> Self {
        self.says(condition("Ready", "False", reason, message, NOW))
    }

    /// The state could not be executed, and is executed again.
    fn stumbles(self, code: Code) -> Self {
        let message = format!("{}: no", code.as_str());
        self.says(condition("Ready", "Unknown", "LookFailed", &message, NOW))
            .next(Next::After(1_000))
    }

    fn event(mut self, reason: &'static str) -> Self {
        self.events.push(reason);
        self
    }

    fn next(mut self, next: Next) -> Self {
        self.next = next;
        self
    }
}

fn merge(target: &mut Value, fields: Value) {
    for (field, value) in fields.as_object().expect("an object") {
        target[field] = value.clone();
    }
}

// What the cases have in common: one router, its VM, and the time of the pass.

/// 2026-01-01T00:00:00Z, when the passes of the test kit run.
const NOW_MS: u64 = 1_767_225_600_000;
const NOW: &str = "2026-01-01T00:00:00Z";
const IN_A_MINUTE: &str = "2026-01-01T00:01:00Z";
/// When the next poll is, unless a case says otherwise.
const SOON: &str = "2026-01-01T00:00:40Z";
const EARLIER: &str = "2025-12-31T23:00:00Z";

const BOOT: &str = concat!(
    r#"router.boot {"name":"r-1","image":"image-1","flavor":"small","#,
    r#""ports":[{"network":"net-1","mac":"fa:16:3e:00:00:01"}]}"#
);
const DELETE: &str = r#"router.delete {"id":"vm-1"}"#;
const DELETE_PORTS: &str = r#"router.delete-ports {"name":"r-1"}"#;
const PUSH: &str =
    r#"config.push {"id":"vm-1","config":{"ports":[{"network":"net-1","mac":"fa:16:3e:00:00:01"}]}}"#;
const MAC: &str = "fa:16:3e:00:00:01";
const SECOND_MAC: &str = "fa:16:3e:00:00:02";

fn port(network: &str, mac: &str) -> Value {
    json!({"network": network, "mac": mac})
}

/// A router's VM of this age in seconds.
fn instance(status: &str, age: u64) -> Value {
    json!({
        "id": "vm-1", "status": status, "createdAt": NOW_MS - age * 1_000, "managed": true,
        "ports": [port("net-1", MAC)],
    })
}

fn interfaces(macs: &[&str]) -> Value {
    json!({"macs": macs})
}

fn task(state: &str) -> Value {
    json!({"id": "task-1", "state": state, "kind": "push"})
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, since: &str) -> Value {
    let mut condition =
        json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": since});
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    condition
}

/// The status in the network service and the reason of `Ready` that go with a letter.
fn told_of(vm: &str) -> (&'static str, &'static str) {
    match vm {
        "D" => ("DOWN", "Down"),
        "B" => ("BUILD", "Booting"),
        "U" => ("BUILD", "Up"),
        "C" => ("ACTIVE", "Configured"),
        "R" => ("BUILD", "RestartNeeded"),
        "H" => ("BUILD", "HotplugNeeded"),
        "G" => ("DOWN", "Gone"),
        "E" => ("ERROR", "Error"),
        other => panic!("no letter: {other}"),
    }
}

fn ready(vm: &str) -> Value {
    let status = if vm == "C" { "True" } else { "False" };
    condition("Ready", status, told_of(vm).1, "", NOW)
}

/// A router in this state, which does this with a VM like that.
fn at(state: &str, action: &str, vm: &str) -> Case {
    let (neutron, reason) = told_of(vm);
    let status = if vm == "C" { "True" } else { "False" };
    let mut fields = json!({
        "machineState": state, "action": action, "vm": vm, "observedGeneration": 1, "nextPoll": SOON,
        "neutronStatus": neutron, "conditions": [condition("Ready", status, reason, "", EARLIER)],
    });
    if !["D", "E"].contains(&vm) {
        fields["instance"] = "vm-1".into();
    }
    router(fields)
}

/// A router with this status. The cloud knows it, and knows no VM.
fn router(status: Value) -> Case {
    let found = |request| (request, Ok(json!({})));
    Case {
        object: json!({
            "apiVersion": "rug.polity.dev/v1alpha1", "kind": "Router",
            "metadata": {
                "name": "r-1", "namespace": "team", "uid": "uid-1", "resourceVersion": "5", "generation": 1,
                "finalizers": ["rug.polity.dev/router"],
            },
            "spec": {"imageUUID": "image-1", "flavor": "small", "ports": [port("net-1", MAC)]},
            "status": status,
        }),
        config: json!({}),
        in_doubt: None,
        answers: vec![
            found("router.resource"),
            found("image.get"),
            found("port.get"),
            ("router.get", Err(Failure::new(Code::NotFound, "no VM"))),
        ],
        acts: Vec::new(),
        notes: Vec::new(),
        written: json!({}),
        released: false,
        events: Vec::new(),
        next: Next::settled(),
    }
}

impl Case {
    /// Somebody deletes it.
    fn deleting(self) -> Self {
        self.edited(|object| object["metadata"]["deletionTimestamp"] = NOW.into())
    }

    /// These events wait.
    fn queue<const N: usize>(self, queue: [&str; N]) -> Self {
        self.with(json!({"queue": queue.to_vec()}))
    }

    /// Its VM is there, has booted long ago and shows its port.
    fn there(self) -> Self {
        self.answers("router.get", instance("ACTIVE", 3_600))
            .answers("router.alive", json!({"alive": true}))
            .answers("router.interfaces", interfaces(&[MAC]))
    }

    /// Its VM is there and does not answer; it is this many seconds old.
    fn silent(self, age: u64) -> Self {
        self.answers("router.get", instance("ACTIVE", age))
            .answers("router.alive", json!({"alive": false}))
            .fails("router.interfaces", Code::FailedPrecondition)
    }
}
