//! The machine's class and its Secret (MCM-R03 to MCM-R06, MCM-R27x).

use std::ops::ControlFlow::{self, Break, Continue};

use polity_sdk::prelude::*;

use crate::{Cx, notes};
use mcm_api::{Machine, MachineClass, Problem};

/// The condition: the class exists and is complete.
const CLASS_VALID: &str = "ClassValid";

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
            let long = problem.class == RetryClass::Long;
            notes(cx, ["MCM-R05", if long { "MCM-R21" } else { "MCM-R22" }]);
            let failure = Failure::new(problem.code, problem.message);
            let conditions = &mut machine.status.conditions;
            let status = ConditionStatus::False;
            conditions.set(cx.now(), CLASS_VALID, status, problem.reason, &failure.message);
            Break(Next::failed(problem.class, failure))
        }
        // It is unknown whether the class is complete, so nothing is created and nothing is deleted.
        Err(failure) => {
            notes(cx, ["MCM-R05", "MCM-R21"]);
            let conditions = &mut machine.status.conditions;
            let status = ConditionStatus::Unknown;
            conditions.announce(cx.now(), CLASS_VALID, status, "LookFailed", &failure.message);
            Break(Next::failed(RetryClass::Long, failure))
        }
    }
}
