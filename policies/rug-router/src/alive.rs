//! Whether the VM is alive: the start, ALIVE and CHECK_BOOT (RUG-01, RUG-08 to RUG-12, RUG-17 to RUG-19, RUG-X04 to
//! RUG-X07).

use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::Router;
use crate::{Cx, cloud, report};

/// A router that nobody has looked at, or whose status was lost: a VM that is there is taken over.
pub(crate) async fn start(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    router.status.vm = probe(cx, router).await?;
    router.status.observed_generation = router.metadata.generation;
    router.status.queue = vec![Action::Create];
    Ok(router.take(cx, "RUG-01", State::CalcAction))
}

/// ALIVE
pub(crate) async fn check(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    router.status.vm = probe(cx, router).await?;
    let next = match (router.status.action, router.status.vm) {
        (_, Vm::Gone) => router.take(cx, "RUG-12", State::StopVm),
        (_, Vm::Down) => router.take(cx, "RUG-08", State::CreateVm),
        // The VM has been seen to boot again: as long as it does, that is all there is to do.
        (_, Vm::Booting) => {
            router.put_back();
            router.take(cx, "RUG-X05", State::CalcAction)
        }
        (_, Vm::RestartNeeded | Vm::HotplugNeeded | Vm::Error) => router.take(cx, "RUG-X05", State::Config),
        (Action::Poll, Vm::Up) if cx.config().poll_configures_up => {
            router.take(cx, "RUG-X06", State::Config)
        }
        (Action::Poll, _) => router.take(cx, "RUG-11", State::CalcAction),
        (Action::Read, Vm::Configured) => router.take(cx, "RUG-10", State::Stats),
        (Action::Read, Vm::Up) => router.take(cx, "RUG-X04", State::Config),
        _ => router.take(cx, "RUG-09", State::Config),
    };
    Ok(next)
}

/// CHECK_BOOT
pub(crate) async fn check_boot(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    router.status.vm = probe(cx, router).await?;
    let next = match router.status.vm {
        Vm::Gone | Vm::Down => router.take(cx, "RUG-19", State::StopVm),
        Vm::Up => router.take(cx, "RUG-17", State::Config),
        Vm::HotplugNeeded => router.take(cx, "RUG-X07", State::ReplugVm),
        Vm::Booting | Vm::Configured | Vm::RestartNeeded | Vm::Error => {
            router.put_back();
            router.take_slowly(cx, "RUG-18", State::CalcAction)
        }
    };
    Ok(next)
}

/// What there is to be believed of the VM.
async fn probe(cx: &Cx, router: &mut Router) -> Result<Vm, Failure> {
    let believed = router.status.vm;
    let (resource, instance) = join!(
        cx.ask(cloud::resource(router)),
        cx.ask(cloud::instance(router))
    );
    if resource.found()?.is_none() {
        return Ok(Vm::Gone);
    }
    let Some(instance) = instance.found()? else {
        router.status.instance = None;
        return Ok(Vm::Down);
    };
    router.status.instance = Some(instance.id.clone());
    let answers = instance.managed && {
        let alive = cx.ask(cloud::alive(&instance.id)).await.found()?;
        alive.is_some_and(|answer| answer.alive)
    };
    let vm = match believed {
        Vm::Configured if answers => {
            router.status.boot_attempts = 0;
            Vm::Configured
        }
        // What has to be plugged has to be plugged still.
        Vm::HotplugNeeded if answers => Vm::HotplugNeeded,
        _ if answers => Vm::Up,
        Vm::Error => Vm::Error,
        // It was there and is silent. One that nobody can reach yet is being moved or started.
        Vm::Configured if instance.managed => {
            report::not_ready(cx, router, "NotAlive", "the VM does not answer any more");
            Vm::Down
        }
        _ if is_young(cx, instance.created_at) => Vm::Booting,
        _ => {
            let message = format!("the VM does not answer after {}", cx.config().boot_timeout);
            report::not_ready(cx, router, "BootTimeout", message);
            Vm::Down
        }
    };
    Ok(vm)
}

/// Whether the VM may still be booting: the cloud says since when, not this policy, which may have been away.
fn is_young(cx: &Cx, created_at: u64) -> bool {
    let age = cx.now().since(Time::from_unix_ms(created_at));
    age < Duration::from(cx.config().boot_timeout)
}
