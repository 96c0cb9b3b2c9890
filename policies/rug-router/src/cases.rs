//! The tables of cases, edge by edge: a router, the state of the cloud, and what the policy does.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component in the sandbox. [`each_case!`](crate::each_case) makes a test
//! of each case.

pub mod booting;
pub mod choosing;
pub mod configuring;
pub mod events;
pub mod living;
pub mod plugging;
pub mod stopping;

use polity_sdk::Resolution;
use polity_sdk::prelude::*;
use polity_sdk::test::{NOW, NOW_MS};
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// Makes a test of each case. The test calls this function with the case.
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

/// The vocabulary of these tables.
trait Words: Sized {
    /// The status has these fields as well.
    fn with(self, fields: Value) -> Self;
    /// The finalizer is removed.
    fn released(self) -> Self;
    /// The machine takes an edge to this state, which is executed at once.
    fn takes(self, id: &str, state: &str) -> Self;
    /// The machine takes an edge to this state, which is executed after a second.
    fn takes_slowly(self, id: &str, state: &str) -> Self;
    /// The machine takes an edge to this state because of this failure. The retry policy decides when it is
    /// executed.
    fn takes_failed(self, id: &str, state: &str, code: Code, message: &str) -> Self;
    /// The pass ends with this failure.
    fn failed(self, code: Code, message: &str) -> Self;
    /// The machine takes an edge to the state in which it rests until the next poll.
    fn rests(self, id: &str) -> Self;
    fn writes(self, fields: Value) -> Self;
    /// What the policy believes of the VM from now on, and what it publishes of it.
    fn vm(self, letter: &str) -> Self;
    /// The condition `Ready`, if it changes.
    fn says(self, ready: Value) -> Self;
    /// Why the router is not ready.
    fn explains(self, reason: &str, message: &str) -> Self;
    /// The execution of the state failed, so the state is executed again.
    fn stumbles(self, code: Code) -> Self;
    /// The router is being deleted.
    fn deleting(self) -> Self;
    /// These events are in the queue.
    fn queue<const N: usize>(self, queue: [&str; N]) -> Self;
    /// The VM exists, booted long ago, and shows its port.
    fn there(self) -> Self;
    /// The VM could not be built.
    fn in_error(self) -> Self;
    /// The VM exists and does not answer. It is this many seconds old.
    fn silent(self, age: u64) -> Self;
}

impl Words for Case {
    fn with(self, fields: Value) -> Self {
        self.edited(|object| merge(&mut object["status"], fields))
    }

    fn released(mut self) -> Self {
        self.patched()["metadata"] = json!({"finalizers": []});
        self
    }

    fn takes(self, id: &str, state: &str) -> Self {
        let stays = self.object()["status"]["machineState"] == state;
        let case = self.notes(id).next(Next::After(0));
        if stays {
            case
        } else {
            case.writes(json!({"machineState": state}))
        }
    }

    fn takes_slowly(self, id: &str, state: &str) -> Self {
        self.takes(id, state).next(Next::After(1_000))
    }

    fn takes_failed(self, id: &str, state: &str, code: Code, message: &str) -> Self {
        self.takes(id, state).failed(code, message)
    }

    fn failed(self, code: Code, message: &str) -> Self {
        self.fails_with(RetryClass::Short, code, message)
    }

    fn rests(self, id: &str) -> Self {
        self.takes(id, "CALC_ACTION")
            .writes(json!({"nextPoll": IN_A_MINUTE}))
            .next(Next::Settled(Some(60_000)))
    }

    fn writes(mut self, fields: Value) -> Self {
        merge(&mut self.patched()["status"], fields);
        self
    }

    fn vm(self, letter: &str) -> Self {
        let (neutron, _) = told_of(letter);
        let before = self.object()["status"].clone();
        let mut case = self;
        if before["vm"] != letter {
            case = case.writes(json!({"vm": letter}));
        }
        if before["neutronStatus"] != neutron {
            case = case.writes(json!({"neutronStatus": neutron}));
        }
        case.says(ready(letter))
    }

    fn says(self, ready: Value) -> Self {
        let before = &self.object()["status"]["conditions"][0];
        let mut ready = ready;
        if before["status"] == ready["status"] {
            ready["lastTransitionTime"] = before["lastTransitionTime"].clone();
        }
        if *before == ready {
            self
        } else {
            self.writes(json!({"conditions": [ready]}))
        }
    }

    fn explains(self, reason: &str, message: &str) -> Self {
        self.says(condition("Ready", "False", reason, message, NOW))
    }

    fn stumbles(self, code: Code) -> Self {
        let message = format!("{}: no", code.as_str());
        self.says(condition("Ready", "Unknown", "LookFailed", &message, NOW))
            .event("LookFailed")
            .failed(code, "no")
    }

    fn deleting(self) -> Self {
        self.edited(|object| object["metadata"]["deletionTimestamp"] = NOW.into())
    }

    fn queue<const N: usize>(self, queue: [&str; N]) -> Self {
        self.with(json!({"queue": queue.to_vec()}))
    }

    fn there(self) -> Self {
        self.answers("router.get", instance("ACTIVE", 3_600))
            .answers("router.alive", json!({"alive": true}))
            .answers("router.interfaces", interfaces(&[MAC]))
    }

    fn in_error(self) -> Self {
        let mut failed = instance("ERROR", 5);
        failed["managed"] = false.into();
        failed["ports"] = json!([]);
        failed["fault"] = NO_HOST.into();
        self.answers("router.get", failed)
    }

    fn silent(self, age: u64) -> Self {
        self.answers("router.get", instance("ACTIVE", age))
            .answers("router.alive", json!({"alive": false}))
            .fails("router.interfaces", Code::FailedPrecondition)
    }
}

fn merge(target: &mut Value, fields: Value) {
    for (field, value) in fields.as_object().expect("an object") {
        target[field] = value.clone();
    }
}

// What the cases share: one router, its VM, and the time of the pass.

const IN_A_MINUTE: &str = "2026-01-01T00:01:00Z";
/// The time of the next poll, unless a case says otherwise.
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
/// What Nova says of a server for which it has no host.
const NO_HOST: &str = "No valid host was found.";
const MAC: &str = "fa:16:3e:00:00:01";
const SECOND_MAC: &str = "fa:16:3e:00:00:02";

fn port(network: &str, mac: &str) -> Value {
    json!({"network": network, "mac": mac})
}

/// The VM of a router, with this age in seconds.
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

/// The status in the network service and the reason of `Ready` for each letter.
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

/// A router in this state, with this action and this VM.
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

/// A router with this status. The cloud knows the router, but no VM.
fn router(status: Value) -> Case {
    let router = json!({
        "apiVersion": "rug.polity.dev/v1alpha1", "kind": "Router",
        "metadata": {
            "name": "r-1", "namespace": "team", "uid": "uid-1", "resourceVersion": "5", "generation": 1,
            "finalizers": ["rug.polity.dev/router"],
        },
        "spec": {"imageUUID": "image-1", "flavor": "small", "ports": [port("net-1", MAC)]},
        "status": status,
    });
    let case = Case::new("RUG-", router)
        .manifest(crate::manifest())
        .creates("router.boot", "r-1");
    let known = ["router.resource", "image.get", "port.get"].into_iter();
    known
        .fold(case, |case, request| case.answers(request, json!({})))
        .lacks("router.get")
}
