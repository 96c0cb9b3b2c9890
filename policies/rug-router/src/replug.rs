//! REPLUG_VM (RUG-24, RUG-25, RUG-X14).

use std::collections::BTreeSet;

use polity_sdk::Effect;
use polity_sdk::cloud::machine::is_transient;
use polity_sdk::cloud::router::{instance, interfaces, plug};
use polity_sdk::prelude::*;

use crate::letters::{State, Vm};
use crate::object::Router;
use crate::{Cx, ports, report};

/// Plugs networks in and out while the VM runs, and waits until the VM shows them.
///
/// The first pass makes no act and only records the change. Otherwise, after a crash in the middle, a VM with half of its
/// ports would look like a VM whose ports the cloud does not know.
///
/// An attach that was cut, also by the end of the host, is in doubt: Nova answers only when the VM has the port, which may take
/// longer than an operation of this host. So a pass looks before it gives up, and gives up only when Nova can no longer go on.
pub(crate) async fn replug(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    let id = router.status.instance.clone().unwrap_or_default();
    let (instance, interfaces) = join!(cx.ask(instance(router.named())), cx.ask(interfaces(&id)));
    let Some(instance) = instance.found()? else {
        return Ok(restart(cx, router, "the VM is gone"));
    };
    let plugged = match interfaces {
        Ok(interfaces) => BTreeSet::from_iter(interfaces.macs),
        Err(failure) => {
            let next = late(cx, router, &format!(": {}", failure.message));
            return Ok(next.unwrap_or_else(|| wait(cx, router)));
        }
    };
    if !router.status.plugging {
        if ports::macs(&instance.ports) != plugged {
            return Ok(restart(cx, router, "the cloud and the VM show different ports"));
        }
        router.status.plugging = true;
        let goes_on: Duration = cx.config().attach_timeout.into();
        router.status.plug_since = Some(cx.now() + goes_on);
        router.status.ports.extend(ports::macs(&ports::wanted(router)));
        return Ok(wait(cx, router));
    }
    if ports::macs(&ports::wanted(router)) != plugged
        && let Some(next) = late(cx, router, "")
    {
        return Ok(next);
    }
    let done = plug(cx, &router.metadata.name, &instance, &router.spec.ports).await?;
    ports::withhold(cx, router, &done.denied);
    if done.changed && done.failure.is_none() {
        // This pass began before the request, and the next one begins after its answer. The time begins once: Nova only
        // accepts a detach, and answers another one in each pass.
        router.status.plug_since = router.status.plug_since.filter(|since| *since <= cx.now());
    }
    // A request without an answer may have plugged the port in. A slow cloud is no reason to remove the VM.
    let refused = |failure: &Failure| failure.effect == Effect::None && !is_transient(failure);
    if let Some(failure) = done.failure.filter(refused) {
        return Ok(restart(cx, router, &failure.message));
    }
    let wanted = ports::macs(&ports::wanted(router));
    if done.changed || wanted != plugged {
        return Ok(wait(cx, router));
    }
    router.status.ports = wanted.into_iter().collect();
    Ok(router.take(cx, "RUG-24", State::Config))
}

/// Gives up a VM that has not shown its networks in time.
fn late(cx: &Cx, router: &mut Router, why: &str) -> Option<Next> {
    let timeout = cx.config().hotplug_timeout;
    let since = *router.status.plug_since.get_or_insert(cx.now());
    if cx.now().since(since) < timeout.into() {
        return None;
    }
    let message = format!("the VM does not show its networks after {timeout}{why}");
    Some(restart(cx, router, &message))
}

/// Waits for a VM that does not show its networks yet.
fn wait(cx: &Cx, router: &mut Router) -> Next {
    router.take_slowly(cx, "RUG-X14", State::ReplugVm)
}

/// Gives up plugging: the VM must be replaced.
fn restart(cx: &Cx, router: &mut Router, message: &str) -> Next {
    report::not_ready_with_event(cx, router, "ReplugFailed", message);
    router.status.vm = Vm::RestartNeeded;
    router.take(cx, "RUG-25", State::StopVm)
}
