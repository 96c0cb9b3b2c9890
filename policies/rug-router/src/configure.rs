//! CONFIG (RUG-20 to RUG-23, RUG-X08).

use std::collections::BTreeSet;

use polity_sdk::cloud::machine::is_transient;
use polity_sdk::cloud::router::{interfaces, push};
use polity_sdk::cloud::vm::{self, TaskError, TaskState};
use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::{Push, Router};
use crate::{Cx, ports, report};

/// Compares the plugged ports, then sends the VM its configuration. That is a task, which the policy follows over
/// several passes.
pub(crate) async fn configure(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    let instance = match router.look(cx).await? {
        Ok(instance) => instance,
        Err(vm) => {
            router.status.vm = vm;
            return Ok(router.take(cx, "RUG-23", State::StopVm));
        }
    };
    let before = router.status.push.clone().unwrap_or_default();
    if let Some(task) = &before.task {
        return follow(cx, router, &before, task).await;
    }
    let plugged = match cx.ask(interfaces(&instance.id)).await {
        Ok(interfaces) => BTreeSet::from_iter(interfaces.macs),
        Err(failure) => return Ok(no_verdict(cx, router, failure)),
    };
    let mut missing = router.spec.ports.clone();
    missing.retain(|port| !plugged.contains(&port.mac));
    ports::own(cx, router, &missing).await?;
    let wanted = ports::wanted(router);
    if ports::macs(&wanted) != plugged {
        router.status.vm = Vm::HotplugNeeded;
        return Ok(router.take(cx, "RUG-22", State::ReplugVm));
    }
    match cx.act(push(&instance.id, &wanted)).await {
        Ok(submitted) => {
            router.status.push = Some(Push {
                task: Some(submitted.task),
                since: Some(cx.now()),
                ..before
            });
            Ok(Next::after(cx.config().retry_delay))
        }
        // The cloud could not be asked, so the VM has not refused the configuration.
        Err(failure) if is_transient(&failure) => Err(failure),
        Err(failure) => Ok(refused(cx, router, &before, failure)),
    }
}

async fn follow(cx: &Cx, router: &mut Router, push: &Push, task: &str) -> Result<Next, Failure> {
    let Some(task) = cx.ask(vm::task(task)).await.found()? else {
        let message = "the task of the configuration has expired, so its result is not known";
        return Ok(no_verdict(cx, router, Failure::new(Code::NotFound, message)));
    };
    let (timeout, since) = (cx.config().config_timeout, push.since.unwrap_or(cx.now()));
    let (code, refusal) = match task.state {
        TaskState::Success => return Ok(configured(cx, router)),
        TaskState::Queued | TaskState::Running if cx.now().since(since) < timeout.into() => {
            return Ok(Next::after(cx.config().retry_delay));
        }
        TaskState::Queued | TaskState::Running => {
            let message = format!("the VM did not accept its configuration within {timeout}");
            (Code::DeadlineExceeded, message)
        }
        TaskState::Error => {
            let TaskError { fault, message, .. } = task.error.unwrap_or_default();
            (Code::FailedPrecondition, format!("{fault}: {message}"))
        }
        TaskState::Other(state) => {
            let message = format!("the configuration is in the unknown state {state:?}");
            return Ok(no_verdict(cx, router, Failure::new(Code::Internal, message)));
        }
    };
    Ok(refused(cx, router, push, Failure::new(code, refusal)))
}

fn configured(cx: &Cx, router: &mut Router) -> Next {
    router.status.vm = Vm::Configured;
    if router.status.action == Action::Read {
        return router.take(cx, "RUG-20", State::Stats);
    }
    router.status.action = Action::Poll;
    router.take(cx, "RUG-21", State::CalcAction)
}

/// Tries again, or replaces the VM after too many tries.
fn refused(cx: &Cx, router: &mut Router, push: &Push, failure: Failure) -> Next {
    let failures = push.failures + 1;
    report::not_ready_with_event(cx, router, "ConfigRefused", &failure.message);
    if failures >= cx.config().max_retries {
        router.status.vm = Vm::RestartNeeded;
        return router.take(cx, "RUG-23", State::StopVm);
    }
    router.status.push = Some(Push {
        failures,
        ..Push::default()
    });
    Next::failed(RetryClass::Short, failure)
}

/// The VM neither accepted nor refused its configuration. It is configured again, after a check whether it is alive.
fn no_verdict(cx: &Cx, router: &mut Router, failure: Failure) -> Next {
    report::not_ready_with_event(cx, router, "NoVerdict", &failure.message);
    router.status.vm = Vm::Up;
    router.status.queue.insert(0, Action::Update);
    router.take_failed(cx, "RUG-X08", State::CalcAction, failure)
}
