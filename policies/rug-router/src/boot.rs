//! CREATE_VM (RUG-13 to RUG-16, RUG-X11), and boots whose answer was lost (RUG-X13, RUG-X15, RUG-X16). A boot in
//! doubt is resolved before everything else, also while the router is being deleted.

use polity_sdk::cloud::router::{
    BOOT, Booted, Creation, Instance, boot, delete, delete_ports, image, no_image,
};
use polity_sdk::prelude::*;
use polity_sdk::{Effect, Resolution};

use crate::letters::{Action, State, Vm};
use crate::object::Router;
use crate::{Cx, ports, report};

/// Handles the outcome of the boot in doubt, if there is one. Each boot counts as one attempt, either here or where
/// it was answered.
pub(crate) fn resolve(cx: &Cx, router: &mut Router) -> Result<Option<Next>, Failure> {
    let Some(doubted) = cx.pending().iter().find(|act| act.operation == BOOT) else {
        return Ok(None);
    };
    Ok(Some(match &doubted.resolution {
        Resolution::Unknown(_) => {
            cx.note("RUG-X13");
            let message = "the answer to the boot was lost, and the cloud cannot yet tell whether it runs";
            report::not_ready(cx, router, "BootInDoubt", message);
            Next::after(cx.config().retry_delay)
        }
        Resolution::Done(answer) => {
            let booted: Booted = polity_sdk::decode(answer, "what a boot in doubt was answered")?;
            router.status.boot_attempts += 1;
            adopt(router, booted.id);
            // The answer does not say which ports were plugged in. All possible ports are given back at the end.
            router.status.ports = router.spec.ports.iter().map(|port| port.mac.clone()).collect();
            router.take(cx, "RUG-X15", State::CheckBoot)
        }
        Resolution::Absent => {
            count_failed(cx, router, "BootFailed", "the boot did not reach the cloud");
            router.take_slowly(cx, "RUG-X16", State::CreateVm)
        }
    }))
}

/// Boots a VM, unless there were too many tries or there is a VM already.
pub(crate) async fn create(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    if router.status.boot_attempts >= cx.config().reboot_error_threshold {
        return Ok(give_up(cx, router));
    }
    match router.look(cx).await? {
        Ok(instance) => return there_is_one(cx, router, instance).await,
        Err(Vm::Gone) => {
            router.status.vm = Vm::Gone;
            return Ok(router.take(cx, "RUG-14", State::StopVm));
        }
        Err(_) => {}
    }
    if let Err(failure) = cx.ask(image(router.image())).await {
        let reason = no_image(&failure).ok_or_else(|| failure.clone())?;
        let image = format!("the image {:?}", router.image());
        return Ok(failed(cx, router, reason, failure.context(image)));
    }
    let wanted = router.spec.ports.clone();
    let ports = ports::own(cx, router, &wanted).await?;
    let macs = ports::macs(&ports);
    if router.status.ports.iter().any(|mac| !macs.contains(mac)) {
        // Only the previous VM had this port, so it could not be found again. The next VM gets new ports.
        cx.act(delete_ports(&router.metadata.name)).await.found()?;
        router.status.ports.clear();
    }
    let creation = Creation {
        name: &router.metadata.name,
        image: router.image(),
        flavor: &router.spec.flavor,
        ports: &ports,
    };
    match cx.act(boot(&creation)).await {
        Ok(booted) => {
            router.status.boot_attempts += 1;
            router.status.ports = macs.into_iter().collect();
            adopt(router, booted.id);
            Ok(router.take(cx, "RUG-13", State::CheckBoot))
        }
        // The effect may be unknown: the next pass then resolves the boot first. Or the request was not even sent.
        Err(failure) if failure.effect == Effect::Unknown => Err(failure),
        Err(failure) if [Code::Aborted, Code::Cancelled].contains(&failure.code) => Err(failure),
        Err(failure) => Ok(failed(cx, router, "BootFailed", failure)),
    }
}

/// Records that the VM with this id belongs to the router and boots.
fn adopt(router: &mut Router, id: String) {
    (router.status.instance, router.status.vm) = (Some(id), Vm::Booting);
}

/// Never boots a second VM beside the first: the first VM belongs to the router, or must be removed first.
async fn there_is_one(cx: &Cx, router: &mut Router, instance: Instance) -> Result<Next, Failure> {
    let known = cx.object().status.instance.as_ref() == Some(&instance.id);
    let down = router.status.vm == Vm::Down;
    let usable = !instance.is_failed() && (!known || (down && instance.is_built()));
    if instance.is_leaving() {
        router.status.vm = Vm::Down;
    } else if usable {
        adopt(router, instance.id);
    } else if down || !known {
        // As the original (`Nova.boot_instance`): a server that is not being built is deleted, and booted again later.
        router.status.vm = Vm::Down;
        cx.act(delete(&instance.id)).await.found()?;
    }
    // A VM that is believed to be usable is left alone.
    Ok(match router.status.vm {
        Vm::Down => {
            router.status.boot_attempts = 0;
            router.take_slowly(cx, "RUG-16", State::CreateVm)
        }
        Vm::HotplugNeeded => router.take(cx, "RUG-X11", State::CheckBoot),
        _ => router.take(cx, "RUG-13", State::CheckBoot),
    })
}

/// No VM was created. The retry policy decides when to try again.
fn failed(cx: &Cx, router: &mut Router, reason: &str, failure: Failure) -> Next {
    count_failed(cx, router, reason, &failure.message);
    router.take_failed(cx, "RUG-16", State::CreateVm, failure)
}

/// Counts a boot that created no VM as an attempt.
fn count_failed(cx: &Cx, router: &mut Router, reason: &str, message: &str) {
    router.status.boot_attempts += 1;
    router.status.vm = Vm::Down;
    report::not_ready_with_event(cx, router, reason, message);
}

/// Ends the present action: a poll in the queue must not start again what failed so often.
fn give_up(cx: &Cx, router: &mut Router) -> Next {
    (router.status.vm, router.status.action) = (Vm::Error, Action::Poll);
    router.status.last_error_time = Some(cx.now());
    let message = format!("after {} boots the VM does not work", router.status.boot_attempts);
    cx.event(EventType::Warning, "BootedInVain", message);
    router.take(cx, "RUG-15", State::CalcAction)
}
