//! The table of cases, edge by edge: a `MachineSafety`, the answer of its API server, and what the policy does.
//!
//! The cases are data. The tests of this crate run them natively, those of the host as a component.
//! [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::prelude::*;
use polity_sdk::test::NOW;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words {
    fn status(self, status: Value) -> Self;
    fn settled(self, seconds: u64) -> Self;
    fn after(self, seconds: u64) -> Self;
}

impl Words for Case {
    fn status(self, status: Value) -> Self {
        self.patch(json!({ "status": status }))
    }

    fn settled(self, seconds: u64) -> Self {
        self.next(Next::Settled(Some(seconds * 1000)))
    }

    fn after(self, seconds: u64) -> Self {
        self.next(Next::After(seconds * 1000))
    }
}

const EARLIER: &str = "2025-12-31T23:59:00Z";
const PROBE: &str = "reachable home";

fn safety(status: Value) -> Case {
    let safety = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety",
        "metadata": {"name": "default", "uid": "uid-s"}, "status": status,
    });
    Case::new("MCM-", safety)
        .manifest(crate::manifest())
        .step_by_step()
        .step([PROBE])
}

fn up(status: Value) -> Case {
    safety(status).answers(PROBE, json!(true))
}

fn down(status: Value) -> Case {
    safety(status).responds(PROBE, Err(Failure::new(Code::Unavailable, "connection refused")))
}

fn reachable(since: &str) -> Value {
    json!([{"type": "Reachable", "status": "True", "reason": "Answers", "lastTransitionTime": since}])
}

fn unreachable(since: &str, message: &str) -> Value {
    json!([{
        "type": "Reachable", "status": "False", "reason": "DoesNotAnswer", "message": message,
        "lastTransitionTime": since,
    }])
}

polity_sdk::cases! { $ each_case of mcm_safety::cases;

mcm_f01_an_api_server_that_answers_is_asked_every_minute:
    up(json!({"conditions": reachable(EARLIER)}))
        .notes("F01")
        .settled(60);

mcm_f01_the_first_answer_is_written_down:
    up(json!({}))
        .notes("F01")
        .status(json!({"conditions": reachable(NOW)}))
        .settled(60);

mcm_f01_a_short_silence_is_forgotten:
    up(json!({"downSince": EARLIER, "conditions": unreachable(EARLIER, "connection refused")}))
        .notes("F01")
        .status(json!({"downSince": null, "conditions": reachable(NOW)}))
        .settled(60);

mcm_f02_a_host_that_cannot_tell_counts_as_no:
    safety(json!({})).fails(PROBE, Code::Unavailable)
        .notes("F02 F03")
        .status(json!({"downSince": NOW, "conditions": unreachable(NOW, "no")}))
        .after(6);

mcm_f03_one_silence_freezes_nobody:
    down(json!({"conditions": reachable(EARLIER)}))
        .notes("F02 F03")
        .status(json!({"downSince": NOW, "conditions": unreachable(NOW, "connection refused")}))
        .after(6);

mcm_f03_thirty_seconds_are_not_too_long:
    down(json!({
            "downSince": "2025-12-31T23:59:30Z", "conditions": unreachable(EARLIER, "connection refused"),
        }))
        .notes("F02 F03")
        .after(6);

mcm_f03_how_long_is_too_long_the_object_says_first:
    down(json!({"downSince": EARLIER, "conditions": unreachable(EARLIER, "connection refused")}))
        .edited(|object| object["spec"] = json!({"freezeAfter": "5m"}))
        .notes("F02 F03")
        .after(6);

mcm_f04_a_long_silence_freezes:
    down(json!({"downSince": EARLIER, "conditions": unreachable(EARLIER, "connection refused")}))
        .notes("F02 F04")
        .event("Frozen")
        .status(json!({"frozen": true, "since": NOW, "reason": "connection refused"}))
        .after(6);

mcm_f05_a_frozen_one_is_asked_as_often_as_the_binding_says:
    down(json!({
            "frozen": true, "since": EARLIER, "reason": "connection refused", "downSince": EARLIER,
            "conditions": unreachable(EARLIER, "connection refused"),
        }))
        .config(json!({"probePeriodWhileDown": "2s"}))
        .notes("F02 F05")
        .after(2);

mcm_f06_the_first_answer_thaws:
    up(json!({
            "frozen": true, "since": EARLIER, "reason": "connection refused", "downSince": EARLIER,
            "conditions": unreachable(EARLIER, "connection refused"),
        }))
        .notes("F01 F06")
        .event("Thawed")
        .status(json!({
            "frozen": false, "since": NOW, "reason": null, "downSince": null, "conditions": reachable(NOW),
        }))
        .settled(60);

one_that_is_being_deleted_asks_nobody:
    up(json!({"frozen": true}))
        .edited(|object| object["metadata"]["deletionTimestamp"] = NOW.into())
        .step_by_step();
}
