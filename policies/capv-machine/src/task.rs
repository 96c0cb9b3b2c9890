//! The task in flight (CAPV-02 to CAPV-09, CAPV-40, CAPV-48, CAPV-50).

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use polity_sdk::cloud::vm::{self, TaskError, TaskState};
use polity_sdk::prelude::*;

use crate::object::{Machine, Phase, TaskKind};
use crate::{Cx, backoff, requeue};

/// Checks the task in flight. While it runs, nothing else happens. Returns the VM of a clone that has just ended.
pub(crate) async fn check(
    cx: &Cx,
    machine: &mut Machine,
) -> Result<ControlFlow<Next, Option<String>>, Failure> {
    let Some(id) = machine.status.task_ref.clone() else {
        cx.note("CAPV-03");
        return Ok(Continue(None));
    };
    cx.note("CAPV-02");
    let found = cx.ask(vm::task(&id)).await.found();
    let Some(task) = found.inspect_err(|_| cx.note("CAPV-40"))? else {
        // Ends the pass, which gives the cloud time to become consistent.
        cx.note("CAPV-08");
        machine.forget_task();
        return Ok(Break(requeue(cx)));
    };
    cx.note("CAPV-04");
    match task.state {
        TaskState::Queued | TaskState::Running => {
            check_timeout(cx, machine)?;
            cx.note("CAPV-05");
            if let Some(question) = task.question {
                cx.note("CAPV-50");
                let message = format!("the VM waits until a person answers in the cloud: {question}");
                machine.report(cx, "QuestionPending", &message);
            }
            Ok(Break(requeue(cx)))
        }
        TaskState::Success => {
            let cloned = task
                .vm
                .filter(|_| machine.status.task_kind == Some(TaskKind::Clone));
            succeeded(cx, machine);
            Ok(Continue(cloned))
        }
        TaskState::Error => {
            let error = task.error.unwrap_or_default();
            if already_as_requested(&error) {
                succeeded(cx, machine)
            } else {
                failed(cx, machine, &error)
            }
            Ok(Continue(None))
        }
        TaskState::Other(state) => {
            cx.note("CAPV-09");
            let message = format!("task {id} is in the unknown state {state:?}");
            machine.report(cx, "TaskStateUnknown", &message);
            Err(Failure::new(Code::Internal, message))
        }
    }
}

fn succeeded(cx: &Cx, machine: &mut Machine) {
    cx.note("CAPV-06");
    machine.forget_task();
    machine.status.retry_after = None;
}

/// A request for the power state that the VM already has is no failure.
fn already_as_requested(error: &TaskError) -> bool {
    error.fault == "InvalidPowerState" && error.existing.is_some() && error.existing == error.requested
}

/// Records the failure, and the pass goes on. [`backoff`] delays changes for a while.
fn failed(cx: &Cx, machine: &mut Machine, error: &TaskError) {
    cx.note("CAPV-07");
    let message = if error.message.is_empty() {
        error.fault.clone()
    } else {
        format!("{}: {}", error.fault, error.message)
    };
    cx.event(EventType::Warning, "TaskFailed", message.clone());
    let is_clone = machine.status.task_kind == Some(TaskKind::Clone);
    let phase = if is_clone && error.fault == "DuplicateName" {
        Phase::NameTaken
    } else {
        machine.status.phase.unwrap_or(Phase::BackingOff)
    };
    machine.not_yet(cx, phase, "TaskFailed", message);
    machine.forget_task();
    backoff::arm(cx, machine);
}

/// Fails if the task has run for too long (CAPV-48). It is not cancelled, because a cloud does not show whose clone a task
/// is, and it is still the only one: a second task beside it would be worse.
fn check_timeout(cx: &Cx, machine: &mut Machine) -> Result<(), Failure> {
    let timeout = machine.spec.task_timeout.or(cx.config().task_timeout);
    let (Some(timeout), Some(since)) = (timeout, machine.status.task_since) else {
        return Ok(());
    };
    if cx.now().since(since) <= Duration::from(timeout) {
        return Ok(());
    }
    cx.note("CAPV-48");
    let message =
        format!("the task has run for more than {timeout}: look at it in the cloud, and cancel it there");
    machine.report(cx, "TaskTimedOut", &message);
    Err(Failure::new(Code::DeadlineExceeded, message))
}
