//! The tables of cases, edge by edge: a machine, what is true of everything else, and what the policy does.
//!
//! They are data. Two drivers run them and must find the same: the tests of this crate run the policy natively, those
//! of the host as a component in the sandbox. [`each_case!`](crate::each_case) makes a test of each case.

/// Declares the cases of one flow, and the macro that makes a test of each.
macro_rules! cases {
    ($dollar:tt $each:ident $flow:ident $($name:ident: $case:expr;)+) => {
        $(
            #[doc = concat!("Case `", stringify!($name), "`.")]
            pub fn $name() -> $crate::cases::Case {
                $case
            }
        )+

        /// Makes a test of each case of one flow. See [`each_case!`](crate::each_case).
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $each {
            ($dollar driver:path) => {
                $(
                    #[test]
                    fn $name() {
                        $dollar driver($dollar crate::cases::$flow::$name());
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

pub mod creation;
pub mod deletion;
pub mod draining;
pub mod health;
pub mod main_flow;
pub mod template;

use polity_sdk::contract::{Act, Pass, Question, Request, Step};
use polity_sdk::prelude::*;
use polity_sdk::test::{Ended, World, describe};
use polity_sdk::{ActInDoubt, Doubt};
use serde_json::{Value, json};

/// Makes a test of each case, which calls this function with it.
#[macro_export]
macro_rules! each_case {
    ($driver:path) => {
        $crate::each_main_flow_case!($driver);
        $crate::each_creation_case!($driver);
        $crate::each_health_case!($driver);
        $crate::each_template_case!($driver);
        $crate::each_deletion_case!($driver);
        $crate::each_draining_case!($driver);
    };
}

/// Every case by name.
pub fn all() -> Vec<(&'static str, Case)> {
    [
        main_flow::all(),
        creation::all(),
        health::all(),
        template::all(),
        deletion::all(),
        draining::all(),
    ]
    .concat()
}

/// One pass.
#[derive(Clone, Debug)]
pub struct Case {
    object: Value,
    config: Value,
    in_doubt: Option<Doubt>,
    /// The other objects of the cluster.
    others: Vec<Value>,
    /// Requests and what they are answered with: the first whose beginning fits. `vm.get`, `Node node-m`.
    answers: Vec<(&'static str, Result<Value, Failure>)>,
    /// Asks for a Node that keep this path fail.
    unreadable: Option<(&'static str, Code)>,
    acts: Vec<String>,
    notes: Vec<String>,
    patch: Option<Value>,
    events: Vec<&'static str>,
    next: Next,
}

impl Case {
    /// Runs the pass with a policy that is given as its steps.
    pub fn run(&self, step: impl FnMut(Pass) -> Step) -> Ended {
        let mut world = World::new(&self.object).config(self.config.clone());
        if let Some(state) = &self.in_doubt {
            world.set_pending(vec![ActInDoubt {
                operation: "machine.create".to_owned(),
                intent: "m".to_owned(),
                since: NOW_MS - 90_000,
                state: state.clone(),
            }]);
        }
        for other in &self.others {
            world.exists(other);
        }
        let (answers, unreadable) = (self.answers.clone(), self.unreadable);
        world.responds(move |request| {
            let line = describe(request);
            let given = answers.iter().find(|(begin, _)| line.starts_with(begin));
            let given = given.map(|(_, answer)| answer.clone().map(|json| json.to_string()));
            given
                .or_else(|| unread(request, unreadable?))
                .or_else(|| usual(request))
        });
        world.pass_with(step)
    }

    /// Requires that the pass did what the table says, and nothing else.
    ///
    /// # Panics
    /// If it did not.
    pub fn check(&self, ended: &Ended) {
        let notes = |ids: &[String]| ids.join(" ").replace("MCM-", "");
        assert_eq!(notes(&ended.notes), notes(&self.notes), "notes");
        assert_eq!(ended.acts(), self.acts, "acts");
        assert_eq!(ended.patch, self.patch, "patch");
        let events: Vec<&str> = ended.events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(events, self.events, "events");
        assert_eq!(ended.next, self.next, "next");
    }

    /// The edges that the case says are taken.
    pub fn edges(&self) -> &[String] {
        &self.notes
    }

    fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    fn in_doubt(mut self, state: Doubt) -> Self {
        self.in_doubt = Some(state);
        self
    }

    fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.object);
        self
    }

    /// This object is in the cluster.
    fn with(mut self, other: Value) -> Self {
        self.others.push(other);
        self
    }

    /// No object of this kind is in the cluster.
    fn without(mut self, kind: &str) -> Self {
        self.others.retain(|other| other["kind"] != kind);
        self
    }

    /// A request and what it is answered with.
    fn answers(mut self, request: &'static str, answer: Value) -> Self {
        self.answers.push((request, Ok(answer)));
        self
    }

    /// A request and how it fails.
    fn fails(mut self, request: &'static str, code: Code) -> Self {
        self.answers.push((request, Err(Failure::new(code, "no"))));
        self
    }

    fn lacks(self, request: &'static str) -> Self {
        self.fails(request, Code::NotFound)
    }

    fn unreadable(mut self, path: &'static str, code: Code) -> Self {
        self.unreadable = Some((path, code));
        self
    }

    fn acts<const N: usize>(mut self, acts: [&str; N]) -> Self {
        self.acts = acts.map(str::to_owned).to_vec();
        self
    }

    /// `"R02 R03"` means MCM-R02 and MCM-R03.
    fn notes(mut self, ids: &str) -> Self {
        self.notes = ids.split_whitespace().map(|id| format!("MCM-{id}")).collect();
        self
    }

    fn patch(mut self, patch: Value) -> Self {
        self.patch = Some(patch);
        self
    }

    /// A patch of the status.
    fn status(self, fields: Value) -> Self {
        self.patch(json!({"status": fields}))
    }

    fn event(mut self, reason: &'static str) -> Self {
        self.events.push(reason);
        self
    }

    fn next(mut self, next: Next) -> Self {
        self.next = next;
        self
    }

    /// A wait without a failure.
    fn waits(self, class: RetryClass) -> Self {
        self.next(Next::retry(class))
    }

    /// A wait with a failure.
    fn failed(self, class: RetryClass, code: Code, message: &str) -> Self {
        self.next(Next::failed(class, Failure::new(code, message)))
    }
}

/// Answers to what few cases are about: the Secret is complete, permits are free, tokens can be made.
fn usual(request: &Request) -> Option<Result<String, Failure>> {
    let answer = match request {
        Request::Ask(ask) => match &ask.question {
            Question::Secret(_) => json!({"exists": true, "keys": ["userData"], "digest": "d"}),
            Question::Permit(_) => json!("held"),
            _ => return None,
        },
        Request::Act(Act::Mint(_)) => json!({"$secret": {"name": "token-1", "key": "token"}}),
        Request::Act(_) => return None,
    };
    Some(Ok(answer.to_string()))
}

fn unread(request: &Request, (path, code): (&str, Code)) -> Option<Result<String, Failure>> {
    let Request::Ask(ask) = request else { return None };
    let Question::Object(query) = &ask.question else {
        return None;
    };
    let hit = query.object.kind == "Node" && query.projection.iter().any(|kept| kept == path);
    hit.then(|| Err(Failure::new(code, "no")))
}

// What the cases have in common: one machine, its class, its node, and the time of the pass.

/// 2026-01-01T00:00:00Z, when the passes of the test kit run.
const NOW_MS: u64 = 1_767_225_600_000;
const NOW: &str = "2026-01-01T00:00:00Z";
/// Five minutes before.
const EARLIER: &str = "2025-12-31T23:55:00Z";
/// An hour before.
const LONG_AGO: &str = "2025-12-31T23:00:00Z";

const CREATE: &str = concat!(
    r#"machine.create {"name":"m","providerSpec":{"size":"s"},"#,
    r#""userData":{"$secret":{"name":"user-data","key":"userData"}},"#,
    r#""bootstrapToken":{"$secret":{"name":"token-1","key":"token"}}}"#
);
const MINT: &str = "mint bootstrap-token for 1200000 ms";
const DELETE: &str = r#"machine.delete {"name":"m","providerID":"vm-1"}"#;
const REVOKE: &str = r#"token.revoke {"token":{"$secret":{"name":"token-1","key":"token"}}}"#;
/// The notes of every pass of a live machine up to its finalizer.
const LIVE: &str = "R02 R03 R06 R09 R11";

fn vm() -> Value {
    json!({"providerID": "vm-1", "nodeName": "node-m"})
}

/// A machine with this status and its finalizer, whose class is there.
fn machine(status: Value) -> Case {
    Case {
        object: json!({
            "apiVersion": "mcm.polity.dev/v1alpha1",
            "kind": "Machine",
            "metadata": {
                "name": "m", "namespace": "shoot", "uid": "uid-m", "resourceVersion": "5", "generation": 1,
                "creationTimestamp": EARLIER, "labels": {"name": "workers"}, "finalizers": ["mcm.polity.dev/machine"],
            },
            "spec": {"class": {"kind": "MachineClass", "name": "small"}},
            "status": status,
        }),
        config: json!({}),
        in_doubt: None,
        others: vec![json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": "small", "namespace": "shoot"},
            "spec": {"providerSpec": {"size": "s"}, "secretRef": {"name": "user-data"}},
        })],
        answers: Vec::new(),
        unreadable: None,
        acts: Vec::new(),
        notes: Vec::new(),
        patch: None,
        events: Vec::new(),
        next: Next::settled(),
    }
}

/// A machine whose VM is made and whose ids are written; in this phase since five minutes.
fn linked(phase: &str) -> Case {
    machine(json!({
        "providerID": "vm-1", "node": "node-m",
        "currentStatus": {"phase": phase, "lastUpdateTime": EARLIER},
        "lastOperation": {"description": "", "type": "Create", "state": "Processing", "lastUpdateTime": EARLIER},
    }))
    .edited(|object| {
        object["metadata"]["labels"]["node"] = "node-m".into();
        object["metadata"]["annotations"] = json!({"machinepriority.machine.sapcloud.io": "3"});
    })
}

/// The same, with the conditions of its node written down.
fn known(phase: &str, ready: &str) -> Case {
    linked(phase).edited(|object| {
        object["status"]["nodeConditions"] = json!([{"type": "Ready", "status": ready}]);
        object["status"]["lastOperation"]["type"] = "HealthCheck".into();
    })
}

/// The machine's node, up to date with an empty template.
fn node(ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-m", "uid": "uid-node", "annotations": {APPLIED: "{}"}},
        "spec": {"providerID": "vm-1"},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

const APPLIED: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";

/// A machine that is being deleted and is at this step.
fn deleting(step: &str) -> Case {
    linked("Terminating").edited(|object| {
        object["metadata"]["deletionTimestamp"] = EARLIER.into();
        object["status"]["lastOperation"] = json!({
            "description": "", "type": "Delete", "state": "Processing", "nextOp": step, "lastUpdateTime": EARLIER,
        });
    })
}

/// What differs of the operation.
fn operation(mut fields: Value) -> Value {
    fields["lastUpdateTime"] = NOW.into();
    json!({"lastOperation": fields})
}

fn phase(phase: &str, timeout: bool) -> Value {
    let mut status = json!({"phase": phase, "lastUpdateTime": NOW});
    if timeout {
        status["timeoutActive"] = true.into();
    }
    status
}

/// Both.
fn and(mut one: Value, other: Value) -> Value {
    if let (Some(one), Value::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

fn class_condition(reason: &str, message: &str) -> Value {
    json!({"conditions": [{
        "type": "ClassValid", "status": "False", "reason": reason, "message": message, "lastTransitionTime": NOW,
    }]})
}
