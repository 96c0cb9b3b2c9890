//! CREATE_VM (RUG-13 to RUG-16, RUG-X11).

use polity_sdk::contract::Effect;
use polity_sdk::prelude::*;

use crate::cloud::{self, Instance};
use crate::letters::{Action, State, Vm};
use crate::object::Router;
use crate::{Cx, ports, report};

/// Boots a VM, unless that was tried too often, or there is one.
pub(crate) async fn create(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    if router.status.boot_attempts >= cx.config().reboot_error_threshold {
        return Ok(give_up(cx, router));
    }
    let (resource, instance, image) = join!(
        cx.ask(cloud::resource(router)),
        cx.ask(cloud::instance(router)),
        cx.ask(cloud::image(router.image())),
    );
    if resource.found()?.is_none() {
        router.status.vm = Vm::Gone;
        return Ok(router.take(cx, "RUG-14", State::StopVm));
    }
    if let Some(instance) = instance.found()? {
        return there_is_one(cx, router, instance).await;
    }
    router.status.instance = None;
    if image.found()?.is_none() {
        let message = format!("there is no image {:?}", router.image());
        return Ok(failed(cx, router, "RUG-16", "ImageNotFound", message));
    }
    let wanted = router.spec.ports.clone();
    let ports = ports::own(cx, router, &wanted).await?;
    match cx.act(cloud::boot(router, &ports)).await {
        Ok(booted) => {
            router.status.boot_attempts += 1;
            adopt(router, booted.id);
            router.status.ports = ports.into_iter().map(|port| port.mac).collect();
            Ok(booting(cx, router))
        }
        // Nobody knows: that is found out before anything else.
        Err(failure) if failure.effect == Effect::Unknown => Err(failure),
        // It was not even tried.
        Err(failure) if [Code::Aborted, Code::Cancelled].contains(&failure.code) => Err(failure),
        Err(failure) => Ok(failed(cx, router, "RUG-16", "BootFailed", failure.message)),
    }
}

/// A VM of this id is the router's, and boots.
pub(crate) fn adopt(router: &mut Router, id: String) {
    router.status.instance = Some(id);
    router.status.vm = Vm::Booting;
}

fn booting(cx: &Cx, router: &mut Router) -> Next {
    router.take(cx, "RUG-13", State::CheckBoot)
}

/// Never a second one beside it: it is the router's, or it has to go first.
async fn there_is_one(cx: &Cx, router: &mut Router, instance: Instance) -> Result<Next, Failure> {
    let known = router.status.instance.as_ref() == Some(&instance.id);
    let leaving = instance.status == "DELETING";
    if !leaving {
        match router.status.vm {
            _ if !known => adopt(router, instance.id),
            Vm::Down if instance.status == "BUILD" => adopt(router, instance.id),
            Vm::Down => {
                cx.act(cloud::delete(&instance.id)).await.found()?;
            }
            // It is believed to be of use, and left alone.
            Vm::HotplugNeeded => return Ok(router.take(cx, "RUG-X11", State::CheckBoot)),
            _ => {}
        }
        if router.status.vm != Vm::Down {
            return Ok(booting(cx, router));
        }
    }
    router.status.vm = Vm::Down;
    router.status.boot_attempts = 0;
    Ok(router.take_slowly(cx, "RUG-16", State::CreateVm))
}

/// No VM was made: another try, soon.
pub(crate) fn failed(cx: &Cx, router: &mut Router, edge: &str, reason: &str, message: String) -> Next {
    router.status.boot_attempts += 1;
    router.status.vm = Vm::Down;
    cx.event(EventType::Warning, reason, message.clone());
    report::not_ready(cx, router, reason, message);
    router.take_slowly(cx, edge, State::CreateVm)
}

/// The action that came to this is over: a poll that waits must not begin anew what has failed so often.
fn give_up(cx: &Cx, router: &mut Router) -> Next {
    router.status.vm = Vm::Error;
    router.status.last_error_time = Some(cx.now());
    router.status.action = Action::Poll;
    let message = format!("the VM was booted {} times in vain", router.status.boot_attempts);
    cx.event(EventType::Warning, "BootedInVain", message);
    router.take(cx, "RUG-15", State::CalcAction)
}
