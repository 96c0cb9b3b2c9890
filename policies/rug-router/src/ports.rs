//! Which ports the router may have.
//!
//! A port that belongs to another router is never attached, and nothing is taken down because of it: it is left out
//! of what is plugged in, and looked at again with each poll.

use std::collections::BTreeSet;

use polity_sdk::prelude::*;

use crate::Cx;
use crate::cloud::{self, KnownPort};
use crate::object::{Port, Router};
use crate::report::PORTS_PLUGGED;

/// Of these ports, those that the router may plug in. The others are withheld from now on.
pub(crate) async fn own(cx: &Cx, router: &mut Router, ports: &[Port]) -> Result<Vec<Port>, Failure> {
    let looks = ports.iter().map(|port| cx.ask(cloud::port(port)));
    let (mut own, mut denied) = (Vec::new(), Vec::new());
    for (port, seen) in ports.iter().zip(join_all(looks).await) {
        match whose(router, seen)? {
            None => own.push(port.clone()),
            Some(reason) => denied.push((port, reason)),
        }
    }
    router.status.withheld.clear();
    withhold(cx, router, &denied);
    Ok(own)
}

/// Leaves these ports out as well, and says which are left out and why.
pub(crate) fn withhold(cx: &Cx, router: &mut Router, denied: &[(&Port, &str)]) {
    let status = &mut router.status;
    status.withheld.extend(denied.iter().map(|(port, _)| port.mac.clone()));
    let Some((_, reason)) = denied.first() else {
        if status.withheld.is_empty() {
            status.conditions.remove(PORTS_PLUGGED);
        }
        return;
    };
    let message = format!("not plugged in: {}", status.withheld.join(", "));
    cx.event(EventType::Warning, reason, message.clone());
    let conditions = &mut status.conditions;
    conditions.set(cx.now(), PORTS_PLUGGED, ConditionStatus::False, reason, message);
}

/// Why the port is not this router's to have; none if it is.
fn whose(router: &Router, seen: Result<KnownPort, Failure>) -> Result<Option<&'static str>, Failure> {
    match seen {
        Ok(port) => {
            let other = port.router.is_some_and(|other| other != router.metadata.name);
            Ok(other.then_some("PortOfAnotherRouter"))
        }
        Err(failure) => denial(&failure).map(Some).ok_or(failure),
    }
}

/// What a refusal says of a port, if it is about whose the port is.
pub(crate) fn denial(failure: &Failure) -> Option<&'static str> {
    match failure.code {
        Code::PermissionDenied => Some("PortOfAnotherRouter"),
        Code::NotFound => Some("PortNotFound"),
        _ => None,
    }
}

/// Whether a port that was withheld could be plugged in now.
pub(crate) async fn is_one_free(cx: &Cx, router: &Router) -> bool {
    let withheld = &router.status.withheld;
    let ports = router.spec.ports.iter().filter(|port| withheld.contains(&port.mac));
    let seen = join_all(ports.map(|port| cx.ask(cloud::port(port)))).await;
    seen.into_iter().any(|seen| matches!(whose(router, seen), Ok(None)))
}

/// The ports that are to be plugged in.
pub(crate) fn wanted(router: &Router) -> Vec<Port> {
    let withheld = &router.status.withheld;
    let ports = router.spec.ports.iter();
    ports.filter(|port| !withheld.contains(&port.mac)).cloned().collect()
}

/// Those that are wanted and not there.
pub(crate) fn missing(router: &Router, there: &BTreeSet<String>) -> Vec<Port> {
    let ports = router.spec.ports.iter();
    ports.filter(|port| !is_in(there, port)).cloned().collect()
}

/// MAC addresses, to be compared.
pub(crate) fn macs<'a>(macs: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
    macs.into_iter().map(|mac| folded(mac)).collect()
}

/// The MAC addresses of ports, to be compared.
pub(crate) fn macs_of(ports: &[Port]) -> BTreeSet<String> {
    macs(ports.iter().map(|port| &port.mac))
}

/// Whether the port is among them.
pub(crate) fn is_in(macs: &BTreeSet<String>, port: &Port) -> bool {
    macs.contains(&folded(&port.mac))
}

fn folded(mac: &str) -> String {
    mac.to_ascii_lowercase()
}
