//! STOP_VM, REBUILD_VM and EXIT (RUG-28 to RUG-31, RUG-X09, RUG-X10, RUG-X12).

use polity_sdk::cloud::router::{Instance, delete, delete_ports, instance, resource};
use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::{FINALIZER, Router};
use crate::{Cx, report};

/// STOP_VM: removes the VM, before another one is created or the router ends.
pub(crate) async fn stop(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    end(cx, router, State::StopVm, ["RUG-X10", "RUG-31", "RUG-30"]).await
}

/// REBUILD_VM: removes the VM in any state, before another one is created.
pub(crate) async fn rebuild(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    if cx.ask(resource(&router.metadata.name)).await.found()?.is_none() {
        router.status.vm = Vm::Gone;
    }
    router.status.boot_attempts = 0;
    end(cx, router, State::RebuildVm, ["RUG-28", "RUG-X09", "RUG-29"]).await
}

/// Removes the VM. The three edges are for a VM that still exists, for a router that ends with it, and for another
/// VM.
async fn end(cx: &Cx, router: &mut Router, here: State, edges: [&str; 3]) -> Result<Next, Failure> {
    let [again, exit, create] = edges;
    match take_down(cx, router).await? {
        Ok(true) => {}
        Ok(false) => return Ok(router.take_slowly(cx, again, here)),
        Err(failure) => {
            report::not_ready_with_event(cx, router, "DeleteFailed", &failure.message);
            return Ok(router.take_failed(cx, again, here, failure));
        }
    }
    match router.status.vm {
        Vm::Gone => router.status.action = Action::Delete,
        _ => router.status.vm = Vm::Down,
    }
    Ok(match router.status.action {
        Action::Delete => router.take(cx, exit, State::Exit),
        _ => router.take(cx, create, State::CreateVm),
    })
}

/// EXIT: nothing is left to do, and later events change nothing.
pub(crate) fn exit(cx: &Cx, router: &mut Router) -> Next {
    cx.note("RUG-X12");
    router.metadata.remove_finalizer(FINALIZER);
    Next::settled()
}

/// Gives the ports back and removes the VM. Returns whether the VM is gone, or the failure of the cloud. The ports
/// come first, because they cannot be found without the VM.
async fn take_down(cx: &Cx, router: &mut Router) -> Result<Result<bool, Failure>, Failure> {
    let vm = cx.ask(instance(router.named())).await.found()?;
    let leaving = vm.as_ref().is_some_and(Instance::is_leaving);
    if !leaving && !router.status.ports.is_empty() {
        match cx.act(delete_ports(&router.metadata.name)).await.found() {
            Ok(_) => router.status.ports.clear(),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    let Some(vm) = vm else {
        router.status.instance = None;
        return Ok(Ok(true));
    };
    // The VM may have been found by its name. From now on the policy looks for its id.
    router.status.instance = Some(vm.id.clone());
    if leaving {
        return Ok(Ok(false));
    }
    if let Err(failure) = cx.act(delete(&vm.id)).await.found() {
        return Ok(Err(failure));
    }
    if cx.ask_again(1, instance(router.named())).await.found()?.is_some() {
        return Ok(Ok(false));
    }
    router.status.instance = None;
    Ok(Ok(true))
}
