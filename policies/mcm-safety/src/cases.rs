//! The table of cases, edge by edge: a `MachineSafety`, what its cloud says, and all that the policy does.
//!
//! It is data, run natively by the tests of this crate and as a component by those of the host.
//! [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::contract::{Pass, Step};
use polity_sdk::prelude::*;
use polity_sdk::test::{Ended, World, describe};
use serde_json::{Value, json};

/// One pass.
#[derive(Clone, Debug)]
pub struct Case {
    object: Value,
    config: Value,
    probe: Result<Value, Failure>,
    asked: bool,
    notes: Vec<String>,
    patch: Option<Value>,
    events: Vec<&'static str>,
    next: Next,
}

impl Case {
    /// Runs the pass with a policy that is given as its steps.
    pub fn run(&self, step: impl FnMut(Pass) -> Step) -> Ended {
        let mut world = World::new(&self.object).config(self.config.clone());
        let probe = self.probe.clone();
        world.responds(move |request| {
            let asked = describe(request) == "api-server.probe {}";
            asked.then(|| probe.clone().map(|json| json.to_string()))
        });
        world.pass_with(step)
    }

    /// Requires that the pass did what the table says, and nothing else.
    ///
    /// # Panics
    /// If it did not.
    pub fn check(&self, ended: &Ended) {
        assert_eq!(ended.notes, self.notes, "notes");
        assert_eq!(ended.journal.len(), usize::from(self.asked), "requests");
        assert_eq!(ended.patch, self.patch, "patch");
        let events: Vec<&str> = ended.events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(events, self.events, "events");
        assert_eq!(ended.next, self.next, "next");
    }

    /// `"F01"` means MCM-F01.
    fn notes(mut self, ids: &str) -> Self {
        self.notes = ids.split(' ').map(|id| format!("MCM-{id}")).collect();
        self
    }

    fn status(mut self, status: Value) -> Self {
        self.patch = Some(json!({ "status": status }));
        self
    }

    fn event(mut self, reason: &'static str) -> Self {
        self.events.push(reason);
        self
    }

    fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.object);
        self
    }

    fn settled(mut self, seconds: u64) -> Self {
        self.next = Next::Settled(Some(seconds * 1000));
        self
    }

    fn after(mut self, seconds: u64) -> Self {
        self.next = Next::After(seconds * 1000);
        self
    }
}

/// 2026-01-01T00:00:00Z, when the passes of the test kit run.
const NOW: &str = "2026-01-01T00:00:00Z";
const EARLIER: &str = "2025-12-31T23:59:00Z";

fn safety(status: Value, probe: Result<Value, Failure>) -> Case {
    Case {
        object: json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety",
            "metadata": {"name": "default", "uid": "uid-s"}, "status": status,
        }),
        config: json!({}),
        probe,
        asked: true,
        notes: Vec::new(),
        patch: None,
        events: Vec::new(),
        next: Next::settled(),
    }
}

fn up(status: Value) -> Case {
    safety(status, Ok(json!({"answers": true})))
}

fn down(status: Value) -> Case {
    safety(
        status,
        Ok(json!({"answers": false, "message": "connection refused"})),
    )
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

/// Declares the cases, and the macro that makes a test of each.
macro_rules! cases {
    ($dollar:tt $($name:ident: $case:expr;)+) => {
        $(
            #[doc = concat!("Case `", stringify!($name), "`.")]
            pub fn $name() -> Case {
                $case
            }
        )+

        /// Every case by name.
        pub fn all() -> Vec<(&'static str, Case)> {
            vec![$((stringify!($name), $name())),+]
        }

        /// Makes a test of each case, which calls this function with it.
        #[macro_export]
        macro_rules! each_case {
            ($dollar driver:path) => {
                $(
                    #[test]
                    fn $name() {
                        $dollar driver($dollar crate::cases::$name());
                    }
                )+
            };
        }
    };
}

cases! { $

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

mcm_f02_a_cloud_that_cannot_tell_counts_as_no:
    safety(json!({}), Err(Failure::new(Code::Unavailable, "no route")))
        .notes("F02 F03")
        .status(json!({"downSince": NOW, "conditions": unreachable(NOW, "no route")}))
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
        .unasked();
}

impl Case {
    fn unasked(mut self) -> Self {
        self.asked = false;
        self
    }
}
