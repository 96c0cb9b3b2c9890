//! STOP_VM, REBUILD_VM and EXIT (RUG-28 to RUG-31, RUG-X09, RUG-X10, RUG-X12).

use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::{FINALIZER, Router};
use crate::{Cx, cloud, report};

/// STOP_VM: to make another VM, or none any more.
pub(crate) async fn stop(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    if !take_down(cx, router).await? {
        return Ok(router.take_slowly(cx, "RUG-X10", State::StopVm));
    }
    if router.status.vm == Vm::Gone {
        router.status.action = Action::Delete;
    } else {
        router.status.vm = Vm::Down;
    }
    Ok(match router.status.action {
        Action::Delete => router.take(cx, "RUG-31", State::Exit),
        _ => router.take(cx, "RUG-30", State::CreateVm),
    })
}

/// REBUILD_VM: to make another VM, whatever this one is like.
pub(crate) async fn rebuild(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    if cx.ask(cloud::resource(router)).await.found()?.is_none() {
        router.status.vm = Vm::Gone;
    }
    router.status.boot_attempts = 0;
    if !take_down(cx, router).await? {
        return Ok(router.take_slowly(cx, "RUG-28", State::RebuildVm));
    }
    if router.status.vm == Vm::Gone {
        router.status.action = Action::Delete;
        return Ok(router.take(cx, "RUG-X09", State::Exit));
    }
    router.status.vm = Vm::Down;
    Ok(router.take(cx, "RUG-29", State::CreateVm))
}

/// EXIT: there is nothing left. What comes later changes nothing.
pub(crate) fn exit(cx: &Cx, router: &mut Router) -> Next {
    cx.note("RUG-X12");
    router.metadata.remove_finalizer(FINALIZER);
    Next::settled()
}

/// Gives the ports back and removes the VM; whether it is gone. Whoever is let go of before that is never found again.
async fn take_down(cx: &Cx, router: &mut Router) -> Result<bool, Failure> {
    let instance = cx.ask(cloud::instance(router)).await.found()?;
    let leaving = instance.as_ref().is_some_and(|instance| instance.status == "DELETING");
    if !leaving && !router.status.ports.is_empty() {
        match cx.act(cloud::delete_ports(router)).await.found() {
            Ok(_) => router.status.ports.clear(),
            Err(failure) => return Ok(failed(cx, router, failure)),
        }
    }
    let Some(instance) = instance else {
        router.status.instance = None;
        return Ok(true);
    };
    // Under whichever name it was found: from now on it is looked for by its id.
    router.status.instance = Some(instance.id.clone());
    if leaving {
        return Ok(false);
    }
    if let Err(failure) = cx.act(cloud::delete(&instance.id)).await.found() {
        return Ok(failed(cx, router, failure));
    }
    let gone = cx.ask_again(1, cloud::instance(router)).await.found()?.is_none();
    if gone {
        router.status.instance = None;
    }
    Ok(gone)
}

fn failed(cx: &Cx, router: &mut Router, failure: Failure) -> bool {
    cx.event(EventType::Warning, "DeleteFailed", failure.message.clone());
    report::not_ready(cx, router, "DeleteFailed", failure.message);
    false
}
