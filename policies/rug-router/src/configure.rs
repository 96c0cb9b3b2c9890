//! CONFIG (RUG-20 to RUG-23, RUG-X08).

use polity_sdk::driver::is_transient;
use polity_sdk::machine::{TaskError, TaskState};
use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::{Push, Router};
use crate::{Cx, cloud, ports, report};

/// Compares what is plugged in, then tells the VM what to be. That is a task, which is followed over passes.
pub(crate) async fn configure(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    let (resource, instance) = join!(
        cx.ask(cloud::resource(router)),
        cx.ask(cloud::instance(router))
    );
    if resource.found()?.is_none() {
        router.status.vm = Vm::Gone;
        return Ok(router.take(cx, "RUG-23", State::StopVm));
    }
    let Some(instance) = instance.found()? else {
        router.status.instance = None;
        router.status.vm = Vm::Down;
        return Ok(router.take(cx, "RUG-23", State::StopVm));
    };
    router.status.instance = Some(instance.id.clone());
    let push = router.status.push.clone().unwrap_or_default();
    if let Some(task) = &push.task {
        return follow(cx, router, &push, task).await;
    }
    let plugged = match cx.ask(cloud::interfaces(&instance.id)).await {
        Ok(interfaces) => ports::macs(&interfaces.macs),
        Err(failure) => return Ok(no_verdict(cx, router, failure.message)),
    };
    let missing = ports::missing(router, &plugged);
    ports::own(cx, router, &missing).await?;
    let wanted = ports::wanted(router);
    if ports::macs_of(&wanted) != plugged {
        router.status.vm = Vm::HotplugNeeded;
        return Ok(router.take(cx, "RUG-22", State::ReplugVm));
    }
    match cx.act(cloud::push(&instance.id, &wanted)).await {
        Ok(submitted) => {
            router.status.push = Some(Push {
                task: Some(submitted.task),
                since: Some(cx.now()),
                ..push
            });
            Ok(Next::after(cx.config().retry_delay))
        }
        // The cloud could not be asked to; the VM has refused nothing.
        Err(failure) if is_transient(&failure) => Err(failure),
        Err(failure) => Ok(refused(cx, router, &push, failure.message)),
    }
}

async fn follow(cx: &Cx, router: &mut Router, push: &Push, task: &str) -> Result<Next, Failure> {
    let Some(task) = cx.ask(machine::task(task)).await.found()? else {
        let message = "the cloud has forgotten what became of the configuration".to_owned();
        return Ok(no_verdict(cx, router, message));
    };
    let timeout = cx.config().config_timeout;
    let since = push.since.unwrap_or(cx.now());
    match task.state {
        TaskState::Success => Ok(configured(cx, router)),
        TaskState::Queued | TaskState::Running if cx.now().since(since) < timeout.into() => {
            Ok(Next::after(cx.config().retry_delay))
        }
        TaskState::Queued | TaskState::Running => {
            let message = format!("the VM did not accept its configuration within {timeout}");
            Ok(refused(cx, router, push, message))
        }
        TaskState::Error => {
            let TaskError { fault, message, .. } = task.error.unwrap_or_default();
            Ok(refused(cx, router, push, format!("{fault}: {message}")))
        }
        TaskState::Other(state) => {
            let message = format!("the configuration is in the unknown state {state:?}");
            Ok(no_verdict(cx, router, message))
        }
    }
}

fn configured(cx: &Cx, router: &mut Router) -> Next {
    router.status.vm = Vm::Configured;
    if router.status.action == Action::Read {
        return router.take(cx, "RUG-20", State::Stats);
    }
    router.status.action = Action::Poll;
    router.take(cx, "RUG-21", State::CalcAction)
}

/// The same again, or where that was tried often enough another VM.
fn refused(cx: &Cx, router: &mut Router, push: &Push, message: String) -> Next {
    let failures = push.failures + 1;
    cx.event(EventType::Warning, "ConfigRefused", message.clone());
    report::not_ready(cx, router, "ConfigRefused", message);
    if failures >= cx.config().max_retries {
        router.status.vm = Vm::RestartNeeded;
        return router.take(cx, "RUG-23", State::StopVm);
    }
    router.status.push = Some(Push {
        failures,
        ..Push::default()
    });
    Next::after(cx.config().retry_delay)
}

/// The VM neither took its configuration nor refused it. It is updated anew, after a look whether it is alive.
fn no_verdict(cx: &Cx, router: &mut Router, message: String) -> Next {
    report::not_ready(cx, router, "NoVerdict", message);
    router.status.vm = Vm::Up;
    router.status.queue.insert(0, Action::Update);
    router.take_slowly(cx, "RUG-X08", State::CalcAction)
}
