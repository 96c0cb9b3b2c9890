//! The machine's class and its Secret (MCM-R03 to MCM-R06, MCM-R27x, MCM-R29x).

use std::ops::ControlFlow::{self, Break, Continue};

use polity_sdk::cloud::machine::is_transient;
use polity_sdk::prelude::*;

use crate::{Cx, notes};
use mcm_api::{Machine, MachineClass, Problem};

/// The condition: the class exists and is complete.
const CLASS_VALID: &str = "ClassValid";

/// How soon a class that cannot be used and its Secrets are looked at again, whatever the retry policy of the binding says. A
/// class that changes begins a pass by itself, a Secret does not: nobody watches Secrets.
const LOOK_AGAIN: Period = Period::from_secs(20);

/// Validates the machine, its class and the class's Secret. Goes on with the class; or without a class, if the
/// machine may be deleted without it.
pub(crate) async fn check(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next, Option<MachineClass>> {
    let class = &machine.spec.class;
    if class.kind.is_empty() || class.name.is_empty() {
        notes(cx, ["MCM-R04", "MCM-R21"]);
        let failure = Failure::new(Code::InvalidArgument, "spec.class lacks a kind or a name");
        cx.event(EventType::Warning, "InvalidMachine", &failure.message);
        return Break(Next::failed(RetryClass::Long, failure));
    }
    cx.note("MCM-R03");
    match Problem::find(cx, machine, cx.config()).await {
        Ok(Ok(class)) => {
            cx.note("MCM-R06");
            machine.status.conditions.heal(cx.now(), CLASS_VALID, "Valid");
            Continue(Some(class))
        }
        Ok(Err(_)) if machine.metadata.deleting() && cx.config().delete_without_class => {
            cx.note("MCM-R27x");
            Continue(None)
        }
        Ok(Err(problem)) => {
            notes(cx, ["MCM-R05", "MCM-R29x"]);
            let conditions = &mut machine.status.conditions;
            let status = ConditionStatus::False;
            conditions.set(cx.now(), CLASS_VALID, status, problem.reason, &problem.message);
            Break(Next::after(LOOK_AGAIN))
        }
        // It is unknown whether the class is complete, so nothing is created and nothing is deleted.
        Err(failure) => {
            let (edge, wait) = if is_transient(&failure) {
                ("MCM-R22", RetryClass::Short)
            } else {
                ("MCM-R21", RetryClass::Long)
            };
            notes(cx, ["MCM-R05", edge]);
            let conditions = &mut machine.status.conditions;
            let status = ConditionStatus::Unknown;
            conditions.announce(cx.now(), CLASS_VALID, status, "LookFailed", &failure.message);
            Break(Next::failed(wait, failure))
        }
    }
}
