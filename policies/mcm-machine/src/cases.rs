//! The tables of cases, edge by edge: a machine, the state of everything else, and what the policy does.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component in the sandbox. [`each_case!`](crate::each_case) makes a test
//! of each case.

pub mod creation;
pub mod deletion;
pub mod draining;
pub mod health;
pub mod main_flow;
pub mod template;

use polity_sdk::contract::{Act, Question, Request};
use polity_sdk::prelude::*;
use polity_sdk::test::NOW;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// Makes a test of each case. The test calls this function with the case.
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

/// The vocabulary of these tables.
trait Words: Sized {
    /// A patch of the status.
    fn status(self, fields: Value) -> Self;
    /// A wait without a failure.
    fn waits(self, class: RetryClass) -> Self;
}

impl Words for Case {
    fn status(self, fields: Value) -> Self {
        self.patch(json!({"status": fields}))
    }

    fn waits(self, class: RetryClass) -> Self {
        self.next(Next::retry(class))
    }
}

/// The usual answers: the Secret is complete, locks are free, tokens can be made, no VM is left.
fn usual(request: &Request) -> Option<Result<Value, Failure>> {
    Some(Ok(match request {
        Request::Ask(ask) => match &ask.question {
            Question::Secret(_) => json!({"exists": true, "keys": ["userData"], "digest": "d"}),
            Question::Lock(_) => json!("held"),
            Question::Cloud(call) if call.operation == "machine.list" => json!({"machines": []}),
            _ => return None,
        },
        Request::Act(Act::Mint(_)) => json!({"$secret": {"name": "token-1", "key": "token"}}),
        Request::Act(_) => return None,
    }))
}

// What the cases share: one machine, its class, its node, and the time of the pass.

/// Five minutes before the pass.
const EARLIER: &str = "2025-12-31T23:55:00Z";
/// Ten minutes before the pass.
const TEN_MINUTES_AGO: &str = "2025-12-31T23:50:00Z";
/// An hour before the pass.
const LONG_AGO: &str = "2025-12-31T23:00:00Z";

const CREATE: &str = concat!(
    r#"machine.create {"name":"m","providerSpec":{"size":"s"},"#,
    r#""userData":{"$secret":{"name":"user-data","key":"userData"}},"#,
    r#""bootstrapToken":{"$secret":{"name":"token-1","key":"token"}}}"#
);
const MINT: &str = "mint bootstrap-token for 1200000 ms";
const DELETE: &str = r#"machine.delete {"name":"m","providerID":"vm-1","providerSpec":{"size":"s"}}"#;
const STATUS: &str = r#"machine.status {"name":"m","providerID":"vm-1","providerSpec":{"size":"s"}}"#;
const INITIALIZE: &str = r#"machine.initialize {"name":"m","providerID":"vm-1","providerSpec":{"size":"s"}}"#;
const REVOKE: &str = r#"revoke {"$secret":{"name":"token-1","key":"token"}}"#;
/// The notes of every pass of a live machine up to its finalizer.
const LIVE: &str = "R02 R03 R06 R09 R11";

fn vm() -> Value {
    json!({"providerID": "vm-1", "nodeName": "node-m"})
}

/// A machine with this status and its finalizer. Its class exists, and its MachineSafety is not frozen.
fn machine(status: Value) -> Case {
    let machine = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": "m", "namespace": "shoot", "uid": "uid-m", "resourceVersion": "5", "generation": 1,
            "creationTimestamp": EARLIER, "labels": {"name": "workers"}, "finalizers": ["mcm.polity.dev/machine"],
        },
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
        "status": status,
    });
    let class = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "small", "namespace": "shoot"},
        "spec": {"providerSpec": {"size": "s"}, "secretRef": {"name": "user-data"}},
    });
    Case::new("MCM-", machine)
        .manifest(crate::manifest())
        .creates("machine.create", "m")
        .exists(class)
        .exists(json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety", "metadata": {"name": "default"},
        }))
        .usually(usual)
}

/// A machine whose VM exists and whose ids are written. It has been in this phase for five minutes.
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

/// The same machine, with the conditions of its node in its status.
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

/// A machine that was made an hour ago, is being deleted and is at this step.
fn deleting(step: &str) -> Case {
    linked("Terminating").edited(|object| {
        object["metadata"]["creationTimestamp"] = LONG_AGO.into();
        object["metadata"]["deletionTimestamp"] = EARLIER.into();
        object["status"]["lastOperation"] = json!({
            "description": "", "type": "Delete", "state": "Processing", "nextOp": step, "lastUpdateTime": EARLIER,
        });
    })
}

/// The changed fields of the operation.
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

/// Merges two values.
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
