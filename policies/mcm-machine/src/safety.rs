//! The freeze (MCM-R25x, MCM-R26x, MCM-R28x): while the API server of the cluster cannot be reached, no machine counts as healthy or as
//! failed.

use std::ops::ControlFlow::{self, Break, Continue};

use mcm_api::{Machine, MachineSafety, OperationKind, OperationState, Phase};
use polity_sdk::prelude::*;

use crate::Cx;

/// The condition, present only where it is or was not true: the `MachineSafety` that the binding names exists.
const SAFETY_FOUND: &str = "SafetyFound";
/// The reason of the condition if the `MachineSafety` is missing.
const MISSING: &str = "MachineSafetyMissing";

/// Does nothing to a live machine while frozen. After the thaw, a machine that was Unknown before counts as Running
/// again, so that its health timeout begins anew.
pub(crate) async fn check(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next> {
    let name = &cx.config().safety;
    if machine.metadata.deleting() || name.is_empty() {
        return Continue(());
    }
    let safety = match cx.ask(cluster::object::<MachineSafety>(name)).await.found() {
        Ok(safety) => safety,
        // Whether it is frozen is unknown, so the machine rests as if it were.
        Err(failure) => {
            cx.note("MCM-R28x");
            let failure = failure.context(format!("MachineSafety {name} cannot be read, so nothing is done"));
            let (conditions, unknown) = (&mut machine.status.conditions, ConditionStatus::Unknown);
            conditions.announce(cx.now(), SAFETY_FOUND, unknown, "LookFailed", &failure.message);
            return Break(Next::failed(RetryClass::Short, failure));
        }
    };
    report(cx, machine, name, safety.is_some());
    let status = safety.map(|safety| safety.status).unwrap_or_default();
    if status.frozen {
        cx.note("MCM-R25x");
        return Break(Next::after(cx.config().resync));
    }
    let unknown_since = machine.status.current_status.last_update_time;
    if machine.phase() == Some(Phase::Unknown) && status.since.is_some() && unknown_since < status.since {
        cx.note("MCM-R26x");
        let operation = (OperationKind::HealthCheck, OperationState::Processing);
        machine.turn(cx.now(), Phase::Running, operation, "the freeze is over");
        return Break(Next::retry(RetryClass::Short));
    }
    Continue(())
}

/// Reports whether the `MachineSafety` exists. Without it nothing ever freezes, and a cluster without its API server
/// looks like a cluster whose nodes are all dead.
fn report(cx: &Cx, machine: &mut Machine, name: &str, found: bool) {
    let conditions = &mut machine.status.conditions;
    if found {
        conditions.heal(cx.now(), SAFETY_FOUND, "Found");
        return;
    }
    let message = format!(
        "MachineSafety {name} does not exist: machines are replaced while the API server is away. \
         Create it, and bind mcm-safety to it, or set the parameter safety to \"\""
    );
    let status = ConditionStatus::False;
    if conditions.announce(cx.now(), SAFETY_FOUND, status, MISSING, &message) {
        cx.event(EventType::Warning, MISSING, message);
    }
}
