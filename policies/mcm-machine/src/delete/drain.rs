//! Draining the node (MCM-D10, MCM-D11, MCM-X10 to MCM-X18).

use std::time::Duration;

use mcm_api::{Machine, NextOp};
use polity_sdk::drain::{Drain, Options, Progress, attachments_of};
use polity_sdk::node::{self as nodes, Node};
use polity_sdk::prelude::*;

use super::{go_on, stay};
use crate::config::UnhealthyNode;
use crate::node::{self, Search};
use crate::{Cx, notes};

/// The condition of the machine: its node is drained.
const DRAINED: &str = "Drained";
/// The condition of the node: its machine is being taken down.
const TERMINATING: &str = "Terminating";
/// For how long a node must have been unhealthy before its kubelet is not waited for.
const UNHEALTHY_FOR: Duration = Duration::from_secs(5 * 60);

/// One pass of the drain.
pub(super) async fn drain(cx: &Cx, machine: &mut Machine) -> Next {
    notes(cx, ["MCM-D10", "MCM-D11"]);
    let mut node = match node::find(cx, machine, node::ALL).await {
        Ok(Search::Ours(node)) => node,
        Ok(other) => {
            let foreign = matches!(other, Search::Foreign);
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
    if is_unhealthy(cx, &node) {
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

/// Whether the pods have had their chance: by the label, by the time since the deletion was asked for, or because a
/// disruption budget refused one of them too often. A drain that was forced once stays so.
fn must_force(cx: &Cx, machine: &Machine) -> bool {
    let timeout = drain_timeout(cx, machine);
    let since = machine.metadata.deletion_timestamp.unwrap_or(cx.now());
    let period = Duration::from(cx.config().pod_eviction_retry).as_millis().max(1);
    let fitting = u32::try_from(timeout.as_millis() / period).unwrap_or(u32::MAX);
    let wanted = machine
        .spec
        .max_evict_retries
        .unwrap_or(cx.config().max_evict_retries);
    let drain = machine.status.drain.as_ref();
    machine.is_forced()
        || cx.now().since(since) > timeout
        || drain.is_some_and(|drain| {
            drain.forced_since.is_some() || drain.is_exhausted(wanted.min(fitting).max(1))
        })
}

fn drain_timeout(cx: &Cx, machine: &Machine) -> Duration {
    machine
        .spec
        .drain_timeout
        .unwrap_or(cx.config().drain_timeout)
        .into()
}

fn is_unhealthy(cx: &Cx, node: &Node) -> bool {
    let bad = |kind: &str, good: &str| {
        node.condition(kind).is_some_and(|condition| {
            let since = condition.last_transition_time;
            condition.status != good && since.is_some_and(|since| cx.now().since(since) > UNHEALTHY_FOR)
        })
    };
    bad("Ready", "True") || bad("ReadonlyFilesystem", "False")
}

/// Tells the node that it ends, then drains it.
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
    let config = cx.config();
    let options = Options {
        force,
        forced_timeout: config.forced_drain_timeout.into(),
        retry_period: config.pod_eviction_retry.into(),
        longest_grace: drain_timeout(cx, machine),
        detach_timeout: config.volume_detach_timeout.into(),
        reattach_timeout: config.volume_reattach_timeout.into(),
        ..Options::default()
    };
    drain.pass(cx, node, &options).await
}

fn conclude(cx: &Cx, machine: &mut Machine, progress: Result<Progress, Failure>, force: bool) -> Next {
    match progress {
        Ok(Progress::Done) => {
            cx.note("MCM-X13");
            done(cx, machine, force, "Drained", "")
        }
        // A conflict says nothing about the pods: somebody else wrote to the node.
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
            not_yet(cx, machine, "WaitingForVolumes", "volumes are on their way");
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

/// The drain did not work in this pass, and is not forced.
fn failed(cx: &Cx, machine: &mut Machine, failure: Failure) -> Next {
    cx.note("MCM-X15");
    not_yet(cx, machine, "DrainFailed", &failure.message);
    let wait = node::wait_after(&failure);
    stay(cx, machine, NextOp::InitiateDrain, wait, failure)
}

/// After a forced drain: no kubelet may be left to detach the volumes, so their attachments are deleted.
pub(super) async fn detach(cx: &Cx, machine: &mut Machine) -> Result<Next, Failure> {
    cx.note("MCM-X16");
    let done = |machine: &mut Machine| {
        Ok(go_on(
            cx,
            machine,
            NextOp::InitiateVMDeletion,
            "no volume is attached",
        ))
    };
    let Search::Ours(node) = node::find(cx, machine, node::ALL).await? else {
        return done(machine);
    };
    if node.status.volumes_attached.is_empty() {
        return done(machine);
    }
    let mut live = attachments_of(cx, &node.metadata.name).await?;
    live.retain(|attachment| !attachment.metadata.deleting());
    if live.is_empty() {
        return done(machine);
    }
    let deletions = live
        .iter()
        .map(|attachment| cx.act(cluster::delete(attachment).any_version()));
    for deleted in join_all(deletions).await {
        deleted.found()?;
    }
    Ok(Next::retry(RetryClass::Short))
}
