//! Draining the node (MCM-D10, MCM-D11, MCM-X10 to MCM-X19, MCM-X24).

use std::time::Duration;

use mcm_api::{Machine, NextOp, UnhealthyNode, driver};
use polity_sdk::kube::drain::{self, Drain, Progress, detach_volumes};
use polity_sdk::kube::node::{self as nodes, Node};
use polity_sdk::prelude::*;

use super::{go_on, stay};
use crate::{Cx, notes};
use mcm_api::node::{self, Search};

/// The condition of the machine: its node is drained.
const DRAINED: &str = "Drained";
/// The condition of the node: its machine is being deleted.
const TERMINATING: &str = "Terminating";
/// After this time of bad health the policy no longer waits for the kubelet of a node.
const UNHEALTHY_FOR: Duration = Duration::from_secs(5 * 60);

/// One pass of the drain.
pub(super) async fn drain(cx: &Cx, machine: &mut Machine) -> Next {
    notes(cx, ["MCM-D10", "MCM-D11"]);
    let mut node = match node::find(cx, machine, node::ALL).await {
        Ok(Search::Ours(node)) => node,
        Ok(other) => {
            let foreign = matches!(other, Search::Foreign { .. });
            cx.note(if foreign { "MCM-X32" } else { "MCM-X10" });
            return go_on(
                cx,
                machine,
                NextOp::InitiateVMDeletion,
                "there is no node to drain",
            );
        }
        Err(failure) => return failed(cx, machine, failure),
    };
    let mut force = must_force(cx, machine);
    if force {
        cx.note("MCM-X12");
    }
    let since = [
        node.not_ready_since(),
        node.not_since("ReadonlyFilesystem", "False"),
    ];
    if since
        .iter()
        .flatten()
        .any(|since| cx.now().since(*since) > UNHEALTHY_FOR)
    {
        cx.note("MCM-X11");
        if cx.config().unhealthy_node == UnhealthyNode::Skip {
            return go_on(
                cx,
                machine,
                NextOp::InitiateVMDeletion,
                "the node cannot be drained",
            );
        }
        force = true;
    }
    let mut drain = machine.status.drain.take().unwrap_or_default();
    let progress = advance(cx, machine, &mut node, &mut drain, force).await;
    machine.status.drain = Some(drain);
    conclude(cx, machine, progress, force)
}

/// Whether the drain must be forced: because of the label, the time since the deletion was requested, or too many
/// refusals of a disruption budget. A forced drain stays forced.
fn must_force(cx: &Cx, machine: &Machine) -> bool {
    let since = machine.metadata.deletion_timestamp.unwrap_or(cx.now());
    let drain = machine.status.drain.as_ref();
    let retries = cx.config().evict_retries(machine);
    machine.is_forced()
        || cx.now().since(since) > cx.config().drain_timeout(machine)
        || drain.is_some_and(|drain| drain.forced_since.is_some() || drain.is_exhausted(retries))
}

/// Marks the node as ending, then drains it.
async fn advance(
    cx: &Cx,
    machine: &Machine,
    node: &mut Node,
    drain: &mut Drain,
    force: bool,
) -> Result<Progress, Failure> {
    if let Some(write) = nodes::set_condition(node, TERMINATING, "True", "ScaleDown", cx.now()) {
        match cx.act(write).await {
            Ok(written) => node.written(written),
            Err(_) if force => {}
            Err(failure) => return Err(failure),
        }
    }
    let options = cx.config().drain(machine, force);
    let progress = drain.pass(cx, node, &options).await?;
    name_volumes(cx, drain).await?;
    Ok(progress)
}

/// Asks the driver for the ids of the volumes that must leave the node, before they leave it.
async fn name_volumes(cx: &Cx, drain: &mut Drain) -> Result<(), Failure> {
    let Some(moving) = drain.unnamed() else {
        return Ok(());
    };
    let specifications = drain::specifications(cx, &moving.volumes).await?;
    if !specifications.is_empty() {
        moving.ids = Some(driver::volumes(cx, &specifications).await?);
        cx.note("MCM-X19");
    }
    Ok(())
}

fn conclude(cx: &Cx, machine: &mut Machine, progress: Result<Progress, Failure>, force: bool) -> Next {
    match progress {
        Ok(Progress::Done) => {
            cx.note("MCM-X13");
            done(cx, machine, force, "Drained", "")
        }
        // A conflict says nothing about the pods: another writer changed the node.
        Err(failure) if failure.code == Code::Aborted => failed(cx, machine, failure),
        Ok(Progress::Failed(failure)) | Err(failure) if force => {
            cx.note("MCM-X14");
            done(cx, machine, force, "ForcedDrainFailed", &failure.message)
        }
        Ok(Progress::Failed(failure)) | Err(failure) => failed(cx, machine, failure),
        Ok(Progress::Refused { left, failure }) => {
            cx.note("MCM-X17");
            let message = format!("{left} pods are left: {}", failure.message);
            not_yet(cx, machine, "EvictionRefused", &message);
            Next::failed(RetryClass::Short, failure)
        }
        Ok(Progress::Ending { left }) => {
            cx.note("MCM-X17");
            let reason = if force { "ForcedDrain" } else { "Evicting" };
            not_yet(cx, machine, reason, &format!("{left} pods are left"));
            Next::retry(RetryClass::Short)
        }
        Ok(Progress::Volumes) => {
            cx.note("MCM-X18");
            not_yet(
                cx,
                machine,
                "WaitingForVolumes",
                "volumes have yet to leave the node",
            );
            Next::retry(RetryClass::Short)
        }
    }
}

fn not_yet(cx: &Cx, machine: &mut Machine, reason: &str, message: &str) {
    let (conditions, status) = (&mut machine.status.conditions, ConditionStatus::False);
    conditions.set(cx.now(), DRAINED, status, reason, message);
}

fn done(cx: &Cx, machine: &mut Machine, force: bool, reason: &str, message: &str) -> Next {
    let (conditions, status) = (&mut machine.status.conditions, ConditionStatus::True);
    conditions.set(cx.now(), DRAINED, status, reason, message);
    machine.status.drain = None;
    let next = if force {
        NextOp::DelVolumeAttachments
    } else {
        NextOp::InitiateVMDeletion
    };
    go_on(cx, machine, next, "the node is drained")
}

/// Records that the drain failed in this pass. It is not forced.
fn failed(cx: &Cx, machine: &mut Machine, failure: Failure) -> Next {
    cx.note("MCM-X15");
    not_yet(cx, machine, "DrainFailed", &failure.message);
    let wait = failure.retry_class();
    stay(cx, machine, NextOp::InitiateDrain, wait, failure)
}

/// After a forced drain: the kubelet may not be able to detach the volumes any more, so their attachments are
/// deleted.
pub(super) async fn detach(cx: &Cx, machine: &mut Machine) -> Next {
    let detached = detach_all(cx, machine).await;
    cx.note(if detached.is_ok() { "MCM-X16" } else { "MCM-X24" });
    match detached {
        Ok(0) => go_on(cx, machine, NextOp::InitiateVMDeletion, "no volume is attached"),
        Ok(_) => Next::retry(RetryClass::Short),
        Err(failure) => {
            let wait = failure.retry_class();
            stay(cx, machine, NextOp::DelVolumeAttachments, wait, failure)
        }
    }
}

/// Deletes the attachments of the node's volumes. Returns how many are left.
async fn detach_all(cx: &Cx, machine: &Machine) -> Result<usize, Failure> {
    match node::find(cx, machine, node::ALL).await? {
        Search::Ours(node) => detach_volumes(cx, &node).await,
        _ => Ok(0),
    }
}
