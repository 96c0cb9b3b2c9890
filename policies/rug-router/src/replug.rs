//! REPLUG_VM (RUG-24, RUG-25, RUG-X14).

use std::collections::BTreeSet;

use polity_sdk::cloud::router::{instance, interfaces, plug};
use polity_sdk::prelude::*;

use crate::letters::{State, Vm};
use crate::object::Router;
use crate::{Cx, ports, report};

/// Plugs networks in and out while the VM runs, and waits until the VM shows them.
///
/// The first pass makes no act and only records the change. Otherwise, after a crash in the middle, a VM with half of its
/// ports would look like a VM whose ports the cloud does not know.
pub(crate) async fn replug(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    let id = router.status.instance.clone().unwrap_or_default();
    let (instance, interfaces) = join!(cx.ask(instance(router.named())), cx.ask(interfaces(&id)));
    let Some(instance) = instance.found()? else {
        return Ok(restart(cx, router, "the VM is gone"));
    };
    let plugged = match interfaces {
        Ok(interfaces) => BTreeSet::from_iter(interfaces.macs),
        Err(failure) => return Ok(wait(cx, router, &format!(": {}", failure.message))),
    };
    if !router.status.plugging {
        if ports::macs(&instance.ports) != plugged {
            return Ok(restart(cx, router, "the cloud and the VM show different ports"));
        }
        router.status.plugging = true;
        router.status.ports.extend(ports::macs(&ports::wanted(router)));
        return Ok(wait(cx, router, ""));
    }
    let done = plug(cx, &router.metadata.name, &instance, &router.spec.ports).await?;
    ports::withhold(cx, router, &done.denied);
    // A request without an answer may have plugged the port in. A slow cloud is no reason to remove the VM.
    let refused = |failure: &Failure| failure.effect == polity_sdk::Effect::None;
    if let Some(failure) = done.failure.filter(refused) {
        return Ok(restart(cx, router, &failure.message));
    }
    let wanted = ports::macs(&ports::wanted(router));
    if done.changed || wanted != plugged {
        return Ok(wait(cx, router, ""));
    }
    router.status.ports = wanted.into_iter().collect();
    Ok(router.take(cx, "RUG-24", State::Config))
}

/// Waits for a VM that does not show its networks yet.
fn wait(cx: &Cx, router: &mut Router, why: &str) -> Next {
    let timeout = cx.config().hotplug_timeout;
    let since = router.status.plug_since.unwrap_or(cx.now());
    if cx.now().since(since) >= timeout.into() {
        let message = format!("the VM does not show its networks after {timeout}{why}");
        return restart(cx, router, &message);
    }
    router.take_slowly(cx, "RUG-X14", State::ReplugVm)
}

/// Gives up plugging: the VM must be replaced.
fn restart(cx: &Cx, router: &mut Router, message: &str) -> Next {
    report::not_ready_with_event(cx, router, "ReplugFailed", message);
    router.status.vm = Vm::RestartNeeded;
    router.take(cx, "RUG-25", State::StopVm)
}
