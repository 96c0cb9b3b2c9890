//! The machine's health (MCM-H01 to MCM-H14): what its node says, and for how long it may say nothing.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use mcm_api::{KnownCondition, LastOperation, Machine, OperationKind, OperationState, Phase};
use polity_sdk::node::Node;
use polity_sdk::prelude::*;

use crate::config::Since;
use crate::node::{self, Search};
use crate::{Cx, creation_timeout, outage, token};

/// Goes on where nothing has changed and nothing has timed out; says when to look again for a timeout's sake.
pub(crate) async fn supervise(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next, Option<Period>> {
    let node = match node::find(cx, machine, node::HEALTH).await {
        Ok(Search::Ours(node)) => Some(node),
        Ok(Search::Missing | Search::Foreign) => None,
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
    let wake = time_out_health(cx, machine).await?;
    cx.note("MCM-H13");
    Continue(wake)
}

/// There is no node. Whether that is news.
fn miss(cx: &Cx, machine: &mut Machine) -> bool {
    let gone = machine.phase() == Some(Phase::Running) && !machine.status.node_conditions.is_empty();
    if gone {
        cx.note("MCM-H02");
        lose(cx, machine, "the node is gone");
    }
    gone
}

/// There is a node. Whether something about it is news.
async fn examine(cx: &Cx, machine: &mut Machine, node: &Node) -> bool {
    let seen = known(node);
    let mut dirty = machine.status.node_conditions != seen;
    if dirty {
        cx.note("MCM-H03");
        machine.status.node_conditions = seen;
    }
    match (why_unhealthy(cx, machine), machine.phase()) {
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

/// The conditions by type, without what changes with every heartbeat.
fn known(node: &Node) -> Vec<KnownCondition> {
    let known = |condition: &polity_sdk::node::NodeCondition| KnownCondition {
        kind: condition.kind.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
    };
    let mut all: Vec<KnownCondition> = node.status.conditions.iter().map(known).collect();
    all.sort();
    all
}

/// Why the machine is not healthy, by the conditions that are written down; none if it is. A node that does not say
/// that it is ready is not.
fn why_unhealthy(cx: &Cx, machine: &Machine) -> Option<String> {
    let conditions = &machine.status.node_conditions;
    let status = |kind: &str| {
        conditions
            .iter()
            .find(|c| c.kind == kind)
            .map(|c| c.status.as_str())
    };
    let ready = status("Ready").unwrap_or("missing");
    if ready != "True" {
        return Some(format!("the node's Ready is {ready}"));
    }
    let watched = machine
        .spec
        .node_conditions
        .as_ref()
        .unwrap_or(&cx.config().node_conditions);
    let bad = watched
        .iter()
        .find(|kind| status(kind).is_some_and(|status| status != "False"));
    bad.map(|kind| format!("the node's {kind} is {}", status(kind).unwrap_or_default()))
}

fn lose(cx: &Cx, machine: &mut Machine, why: &str) {
    machine.set_phase(cx.now(), Phase::Unknown);
    let (kind, state) = (OperationKind::HealthCheck, OperationState::Processing);
    machine.operate(cx.now(), LastOperation::new(kind, state, why));
    cx.event(EventType::Warning, "NodeUnhealthy", why);
}

/// The node is healthy and the machine is not Running: it is, unless what it needs first is not there yet.
async fn recover(cx: &Cx, machine: &mut Machine, node: &Node) -> bool {
    let creating =
        machine.status.last_operation.as_ref().is_some_and(|last| {
            last.kind == OperationKind::Create && last.state != OperationState::Successful
        });
    let kind = if creating {
        let taint = &cx.config().critical_components_taint;
        let not_ready = |t: &polity_sdk::node::Taint| t.key == *taint && t.effect == "NoSchedule";
        if machine.phase() == Some(Phase::Pending) && node.spec.taints.iter().any(not_ready) {
            return false;
        }
        cx.note("MCM-H05");
        token::revoke(cx, machine).await;
        OperationKind::Create
    } else {
        cx.note("MCM-H06");
        OperationKind::HealthCheck
    };
    machine.set_phase(cx.now(), Phase::Running);
    machine.operate(
        cx.now(),
        LastOperation::new(kind, OperationState::Successful, "the node is healthy"),
    );
    cx.event(EventType::Normal, "Running", "the node is healthy");
    true
}

/// A Pending machine that has not joined in time is given up.
pub(crate) fn time_out_creation(cx: &Cx, machine: &mut Machine) -> bool {
    let elapsed = match cx.config().creation_timeout_since {
        Since::Creation => machine.age(cx.now()),
        Since::Pending => machine.in_phase(cx.now()),
    };
    let late = machine.phase() == Some(Phase::Pending) && elapsed > creation_timeout(cx, machine);
    if late {
        cx.note("MCM-H07");
        give_up(cx, machine, "the node did not join in time");
    }
    late
}

/// An Unknown machine that stays Unknown for too long is given up, if no other one of its deployment is.
async fn time_out_health(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next, Option<Period>> {
    let check = Continue(Some(cx.config().timeout_check));
    match machine.phase() {
        Some(Phase::Unknown) if machine.spec.disable_health_timeout => {
            cx.note("MCM-H14");
            Continue(None)
        }
        Some(Phase::Unknown) => {
            let timeout = machine.spec.health_timeout.unwrap_or(cx.config().health_timeout);
            if machine.in_phase(cx.now()) <= Duration::from(timeout) {
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

/// The machine is Failed; its MachineSet replaces it.
pub(crate) fn give_up(cx: &Cx, machine: &mut Machine, why: &str) {
    machine.set_phase(cx.now(), Phase::Failed);
    let kind = machine
        .status
        .last_operation
        .as_ref()
        .map_or(OperationKind::HealthCheck, |last| last.kind);
    machine.operate(cx.now(), LastOperation::new(kind, OperationState::Failed, why));
    cx.event(EventType::Warning, "MachineFailed", why);
}

/// Notes the ids that stop the health check and says when to try again.
pub(crate) fn stop(cx: &Cx, ids: &[&str], code: Code, why: &str) -> Next {
    ids.iter().for_each(|id| cx.note(*id));
    Next::failed(RetryClass::Short, Failure::new(code, why))
}
