//! Checks whether the VM is alive: the start, ALIVE and CHECK_BOOT (RUG-01, RUG-08 to RUG-12, RUG-17 to RUG-19,
//! RUG-X04 to RUG-X07).

use polity_sdk::cloud::router;
use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::Router;
use crate::{Cx, report};

/// Starts with a new router, or with one whose status was lost. A VM that exists is taken over.
pub(crate) async fn start(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    router.status.vm = probe(cx, router).await?;
    router.status.observed_generation = router.metadata.generation;
    router.status.queue = vec![Action::Create];
    Ok(router.take(cx, "RUG-01", State::CalcAction))
}

/// ALIVE
pub(crate) async fn check(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    router.status.vm = probe(cx, router).await?;
    let (edge, to) = match (router.status.action, router.status.vm) {
        (_, Vm::Gone) => ("RUG-12", State::StopVm),
        (_, Vm::Down) => ("RUG-08", State::CreateVm),
        // The VM was seen to boot again. Nothing else is done until that ends.
        (_, Vm::Booting) => {
            router.put_back();
            ("RUG-X05", State::CalcAction)
        }
        (_, Vm::RestartNeeded | Vm::HotplugNeeded | Vm::Error) => ("RUG-X05", State::Config),
        (Action::Poll, Vm::Up) if cx.config().poll_configures_up => ("RUG-X06", State::Config),
        (Action::Poll, _) => ("RUG-11", State::CalcAction),
        (Action::Read, Vm::Configured) => ("RUG-10", State::Stats),
        (Action::Read, Vm::Up) => ("RUG-X04", State::Config),
        _ => ("RUG-09", State::Config),
    };
    Ok(router.take(cx, edge, to))
}

/// CHECK_BOOT
pub(crate) async fn check_boot(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    router.status.vm = probe(cx, router).await?;
    Ok(match router.status.vm {
        Vm::Gone | Vm::Down => router.take(cx, "RUG-19", State::StopVm),
        Vm::Up => router.take(cx, "RUG-17", State::Config),
        Vm::HotplugNeeded => router.take(cx, "RUG-X07", State::ReplugVm),
        Vm::Booting | Vm::Configured | Vm::RestartNeeded | Vm::Error => {
            router.put_back();
            router.take_slowly(cx, "RUG-18", State::CalcAction)
        }
    })
}

/// Checks the VM, and returns what the policy believes of it from now on.
async fn probe(cx: &Cx, router: &mut Router) -> Result<Vm, Failure> {
    let instance = match router.look(cx).await? {
        Ok(instance) => instance,
        Err(vm) => return Ok(vm),
    };
    let alive = router::alive(&instance.id);
    let answers = instance.managed && cx.ask(alive).await.found()?.is_some_and(|answer| answer.alive);
    let age = cx.now().since(Time::from_unix_ms(instance.created_at));
    Ok(match router.status.vm {
        Vm::Configured if answers => {
            router.status.boot_attempts = 0;
            Vm::Configured
        }
        // An answer does not show that the networks are plugged, so they still have to be.
        Vm::HotplugNeeded if answers => Vm::HotplugNeeded,
        _ if answers => Vm::Up,
        Vm::Error => Vm::Error,
        // It will never answer, so it is replaced at once, and not only after the boot timeout.
        _ if instance.is_failed() => {
            report::not_ready_with_event(cx, router, "InstanceFailed", instance.what_failed());
            Vm::Down
        }
        // The VM worked and does not answer any more. A VM that cannot be reached yet is being moved or started
        // instead.
        Vm::Configured if instance.managed => {
            report::not_ready(cx, router, "NotAlive", "the VM does not answer any more");
            Vm::Down
        }
        _ if age < cx.config().boot_timeout.into() => Vm::Booting,
        _ => {
            let message = format!("the VM does not answer after {}", cx.config().boot_timeout);
            report::not_ready(cx, router, "BootTimeout", message);
            Vm::Down
        }
    })
}
