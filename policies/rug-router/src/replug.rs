//! REPLUG_VM (RUG-24, RUG-25, RUG-X14).

use polity_sdk::prelude::*;

use crate::letters::{State, Vm};
use crate::object::Router;
use crate::{Cx, cloud, ports, report};

/// Plugs networks in and out while the VM runs, and waits until the VM shows it.
///
/// That begins in a pass of its own, which acts not at all: after a crash in the middle of it, what is half plugged
/// must not be taken for a VM that the cloud knows wrongly.
pub(crate) async fn replug(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    let id = router.status.instance.clone().unwrap_or_default();
    let (instance, interfaces) = join!(
        cx.ask(cloud::instance(router)),
        cx.ask(cloud::interfaces(&id))
    );
    let Some(instance) = instance.found()? else {
        return Ok(restart(cx, router, "the VM is gone".to_owned()));
    };
    let plugged = match interfaces {
        Ok(interfaces) => ports::macs(&interfaces.macs),
        Err(failure) => return Ok(wait(cx, router, failure.message)),
    };
    let attached = ports::macs_of(&instance.ports);
    if !router.status.plugging {
        if attached != plugged {
            return Ok(restart(cx, router, "the cloud does not know what is plugged in".to_owned()));
        }
        router.status.plugging = true;
        let begun = ports::wanted(router).into_iter().map(|port| port.mac);
        router.status.ports.extend(begun);
        return Ok(wait(cx, router, String::new()));
    }
    let missing = ports::missing(router, &attached);
    let missing = ports::own(cx, router, &missing).await?;
    let wanted = ports::macs_of(&ports::wanted(router));
    let extra = instance.ports.iter().filter(|port| !ports::is_in(&wanted, port));
    let (attached, detached) = join!(
        join_all(missing.iter().map(|port| cx.act(cloud::attach(&id, port)))),
        join_all(extra.map(|port| cx.act(cloud::detach(&id, port)))),
    );
    let (mut changed, mut denied) = (false, Vec::new());
    for (port, answer) in missing.iter().zip(attached) {
        match answer {
            Ok(_) => changed = true,
            Err(failure) if failure.code == Code::AlreadyExists => {}
            Err(failure) => match ports::denial(&failure) {
                Some(reason) => denied.push((port, reason)),
                None => return Ok(restart(cx, router, failure.message)),
            },
        }
    }
    for answer in detached {
        match answer.found() {
            Ok(done) => changed |= done.is_some(),
            Err(failure) => return Ok(restart(cx, router, failure.message)),
        }
    }
    if !denied.is_empty() {
        ports::withhold(cx, router, &denied);
    }
    let wanted = ports::wanted(router);
    if !changed && ports::macs_of(&wanted) == plugged {
        router.status.ports = wanted.into_iter().map(|port| port.mac).collect();
        return Ok(router.take(cx, "RUG-24", State::Config));
    }
    Ok(wait(cx, router, String::new()))
}

/// The VM does not show it yet. It is given some time.
fn wait(cx: &Cx, router: &mut Router, message: String) -> Next {
    let timeout = cx.config().hotplug_timeout;
    let since = router.status.plug_since.unwrap_or(cx.now());
    if cx.now().since(since) >= timeout.into() {
        let message = format!("the VM does not show its networks after {timeout}: {message}");
        return restart(cx, router, message.trim_end_matches(": ").to_owned());
    }
    router.take_slowly(cx, "RUG-X14", State::ReplugVm)
}

/// It cannot be plugged: it has to be made anew.
fn restart(cx: &Cx, router: &mut Router, message: String) -> Next {
    cx.event(EventType::Warning, "ReplugFailed", message.clone());
    report::not_ready(cx, router, "ReplugFailed", message);
    router.status.vm = Vm::RestartNeeded;
    router.take(cx, "RUG-25", State::StopVm)
}
