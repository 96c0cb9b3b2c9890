//! Tasks: work that takes longer than a call (ORB-30, ORB-31).

use orbiter_api::{Because, Fleet, Orb, Stop, Task, TaskKind, Token};
use polity_sdk::cloud::pool::Machine;
use polity_sdk::cloud::vm::{self, TaskState};
use polity_sdk::cluster::Sealed;
use polity_sdk::kube::node::Node;
use polity_sdk::prelude::*;

use crate::Cx;

/// Records submitted work.
pub(crate) fn track<'a>(
    cx: &Cx,
    orb: &'a mut Orb,
    id: String,
    kind: TaskKind,
    on: &Machine,
    token: Option<&Sealed>,
) -> &'a mut Task {
    let token = token.map(Sealed::parts).map(|(name, key)| Token {
        name: name.to_owned(),
        key: key.to_owned(),
    });
    orb.status.tasks.push(Task {
        id,
        kind,
        machine: on.name.clone(),
        node: on.node_name.clone(),
        provider_id: on.provider_id.clone(),
        since: cx.now(),
        done: None,
        token,
    });
    orb.status.tasks.last_mut().expect("pushed above")
}

/// Follows the tasks. While one runs, or its node is still to appear, nothing else is done.
pub(crate) async fn follow(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let tasks = orb.status.tasks.iter_mut();
    let ends = join_all(tasks.map(|task| end(cx, fleet, task))).await;
    let (mut failed, mut left) = (None, Vec::new());
    for (task, end) in orb.status.tasks.drain(..).zip(ends) {
        if task.kind == TaskKind::Init && task.done.is_some() {
            let first = task.machine.clone();
            orb.status.initialized.get_or_insert(first);
        }
        match end {
            Ok(End::Over) => {}
            Ok(End::NotYet) => left.push(task),
            Ok(End::Failed(failure)) => failed = Some(failure),
            Err(failure) => {
                left.push(task);
                failed = Some(failure);
            }
        }
    }
    let waiting = left.first().map(|task| (task.kind, task.machine.clone()));
    orb.status.tasks = left;
    failed.map_or(Ok(()), Err).because("TaskFailed")?;
    let Some((kind, machine)) = waiting else {
        return Ok(());
    };
    cx.note("ORB-30");
    let (reason, what) = match kind {
        TaskKind::Install => ("InstallingAgents", "gets its node agent"),
        TaskKind::Init => ("Initializing", "becomes the first node"),
        TaskKind::Join => ("Joining", "becomes a node"),
        TaskKind::Remove => ("RemovingMachines", "is being removed"),
    };
    Err(Stop::wait(
        cx.config().pause,
        reason,
        format!("machine {machine} {what}"),
    ))
}

enum End {
    NotYet,
    Over,
    Failed(Failure),
}

/// Asks for a task, and does what must follow its end. `Err` is a failure of the question or of what follows.
async fn end(cx: &Cx, fleet: &Fleet, task: &mut Task) -> Result<End, Failure> {
    if task.done.is_some() {
        return finish(cx, fleet, task).await;
    }
    let Some(found) = cx.ask(vm::task(&task.id)).await.found()? else {
        // The record of the task has expired. The present machines and nodes show its outcome.
        return match task.kind {
            TaskKind::Remove => finish(cx, fleet, task).await,
            _ => Ok(End::Over),
        };
    };
    match found.state {
        TaskState::Queued | TaskState::Running => Ok(End::NotYet),
        TaskState::Success => finish(cx, fleet, task).await,
        TaskState::Error => {
            cx.note("ORB-31");
            revoke(cx, task).await;
            let error = found.error.unwrap_or_default();
            let message = format!("machine {}: {}: {}", task.machine, error.fault, error.message);
            Ok(End::Failed(Failure::new(Code::FailedPrecondition, message)))
        }
        TaskState::Other(state) => {
            let message = format!("task {} is in the unknown state {state:?}", task.id);
            Err(Failure::new(Code::Internal, message))
        }
    }
}

/// Handles a task that succeeded.
async fn finish(cx: &Cx, fleet: &Fleet, task: &mut Task) -> Result<End, Failure> {
    match task.kind {
        TaskKind::Install => return Ok(End::Over),
        TaskKind::Remove => return delete_node(cx, task).await.map(|()| End::Over),
        TaskKind::Init => {}
        TaskKind::Join => revoke(cx, task).await,
    }
    let since = *task.done.get_or_insert(cx.now());
    let mut members = fleet.members.iter();
    if members.any(|member| member.machine.name == task.machine && member.node.is_some()) {
        return Ok(End::Over);
    }
    if cx.now().since(since) <= Duration::from(cx.config().join_timeout) {
        return Ok(End::NotYet);
    }
    let message = format!("node {} has not appeared within joinTimeout", task.node);
    cx.event(EventType::Warning, "NodeMissing", message);
    Ok(End::Over)
}

/// Deletes the Node of a removed machine, if it belongs to that machine.
async fn delete_node(cx: &Cx, task: &Task) -> Result<(), Failure> {
    let node = cluster::object::<Node>(&task.node).keep(&["spec.providerID"]);
    let node = cx.ask(node).await.found()?;
    if let Some(node) = node.filter(|node| node.spec.provider_id.as_ref() == Some(&task.provider_id)) {
        // The uid is enough as precondition: others may write to the Node all the time.
        cx.act(cluster::delete(&node).any_version()).await.found()?;
    }
    Ok(())
}

/// Revokes a token after use. A token that cannot be revoked expires.
async fn revoke(cx: &Cx, task: &mut Task) {
    let Some(token) = task.token.take() else {
        return;
    };
    let sealed = cluster::sealed(&token.name, &token.key);
    if let Err(failure) = cx.act(cluster::revoke(sealed)).await.found() {
        cx.event(EventType::Warning, "TokenNotRevoked", failure.message);
    }
}
