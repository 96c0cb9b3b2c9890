//! The machine's health (MCM-H01 to MCM-H14): the state of its node, and the timeouts while the state is unknown.

use std::ops::ControlFlow::{self, Break, Continue};

use mcm_api::{KnownCondition, Machine, OperationKind, OperationState, Phase, Since, token};
use polity_sdk::kube::node::Node;
use polity_sdk::prelude::*;

use crate::{Cx, outage};
use mcm_api::node::{self, Search};

/// Supervises the machine. If nothing changed and nothing timed out, the pass goes on, with the time until the next
/// check for a timeout.
pub(crate) async fn supervise(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next, Option<Period>> {
    let node = match node::find(cx, machine, node::HEALTH).await {
        Ok(Search::Ours(node)) => Some(node),
        Ok(Search::Missing | Search::Foreign { .. }) => None,
        Err(failure) => {
            cx.note("MCM-H01");
            return Break(Next::failed(RetryClass::Short, failure));
        }
    };
    let dirty = match &node {
        Some(node) => examine(cx, machine, node).await,
        None => miss(cx, machine),
    };
    if dirty || time_out_creation(cx, machine) {
        cx.note("MCM-H12");
        return Break(Next::retry(RetryClass::Short));
    }
    let next_check = time_out_health(cx, machine).await?;
    cx.note("MCM-H13");
    Continue(next_check)
}

/// Handles a missing node. Returns whether that is a change.
fn miss(cx: &Cx, machine: &mut Machine) -> bool {
    let gone = machine.phase() == Some(Phase::Running) && !machine.status.node_conditions.is_empty();
    if gone {
        cx.note("MCM-H02");
        lose(cx, machine, "the node is gone");
    }
    gone
}

/// Handles the node. Returns whether anything about it has changed.
async fn examine(cx: &Cx, machine: &mut Machine, node: &Node) -> bool {
    let seen = KnownCondition::all(node);
    let mut dirty = machine.status.node_conditions != seen;
    if dirty {
        cx.note("MCM-H03");
        machine.status.node_conditions = seen;
    }
    match (
        machine.why_unhealthy(&cx.config().node_conditions),
        machine.phase(),
    ) {
        (Some(why), Some(Phase::Running)) => {
            cx.note("MCM-H04");
            lose(cx, machine, &why);
            dirty = true;
        }
        (None, phase) if phase != Some(Phase::Running) => dirty |= recover(cx, machine, node).await,
        _ => {}
    }
    dirty
}

fn lose(cx: &Cx, machine: &mut Machine, why: &str) {
    let operation = (OperationKind::HealthCheck, OperationState::Processing);
    machine.turn(cx.now(), Phase::Unknown, operation, why);
    cx.event(EventType::Warning, "NodeUnhealthy", why);
}

/// The node is healthy but the machine is not Running. Makes the machine Running, unless a precondition of that is
/// missing.
async fn recover(cx: &Cx, machine: &mut Machine, node: &Node) -> bool {
    let kind = if machine.is_being_created() {
        let taint = &cx.config().critical_components_taint;
        if machine.phase() == Some(Phase::Pending) && node.has_taint(taint, "NoSchedule") {
            return false;
        }
        cx.note("MCM-H05");
        token::revoke(cx, machine).await;
        OperationKind::Create
    } else {
        cx.note("MCM-H06");
        OperationKind::HealthCheck
    };
    let (operation, why) = ((kind, OperationState::Successful), "the node is healthy");
    machine.turn(cx.now(), Phase::Running, operation, why);
    cx.event(EventType::Normal, "Running", why);
    true
}

/// Gives up a Pending machine that has not joined in time.
pub(crate) fn time_out_creation(cx: &Cx, machine: &mut Machine) -> bool {
    let elapsed = match cx.config().creation_timeout_since {
        Since::Creation => machine.age(cx.now()),
        Since::Pending => machine.in_phase(cx.now()),
    };
    let late = machine.phase() == Some(Phase::Pending) && elapsed > cx.config().creation_timeout(machine);
    if late {
        cx.note("MCM-H07");
        give_up(cx, machine, "the node did not join in time");
    }
    late
}

/// Gives up a machine that was Unknown for too long, unless another one of its deployment is being replaced.
async fn time_out_health(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next, Option<Period>> {
    let check = Continue(Some(cx.config().timeout_check));
    match machine.phase() {
        Some(Phase::Unknown) if machine.spec.disable_health_timeout => {
            cx.note("MCM-H14");
            Continue(None)
        }
        Some(Phase::Unknown) => {
            if machine.in_phase(cx.now()) <= cx.config().health_timeout(machine) {
                cx.note("MCM-H11");
                return check;
            }
            outage::replace(cx, machine).await
        }
        Some(Phase::Pending) => {
            cx.note("MCM-H11");
            check
        }
        _ => Continue(None),
    }
}

/// Makes the machine Failed, so that its MachineSet replaces it.
pub(crate) fn give_up(cx: &Cx, machine: &mut Machine, why: &str) {
    let kind = machine.last_kind().unwrap_or(OperationKind::HealthCheck);
    machine.turn(cx.now(), Phase::Failed, (kind, OperationState::Failed), why);
    cx.event(EventType::Warning, "MachineFailed", why);
}
