//! Selects the ports that the router may have.
//!
//! A port that belongs to another router is never attached, and nothing is removed because of it. It is left out of the
//! plugged ports, and checked again with each poll.

use std::collections::BTreeSet;

use polity_sdk::cloud::router::{Port, judge};
use polity_sdk::prelude::*;

use crate::Cx;
use crate::object::Router;
use crate::report::PORTS_PLUGGED;

/// The ports among these that the router may plug in. The other ports become withheld.
pub(crate) async fn own(cx: &Cx, router: &mut Router, ports: &[Port]) -> Result<Vec<Port>, Failure> {
    let judged = judge(cx, &router.metadata.name, ports).await?;
    withhold(cx, router, &judged.denied);
    Ok(judged.own)
}

/// Withholds these ports, and reports which and why.
pub(crate) fn withhold(cx: &Cx, router: &mut Router, denied: &[(Port, &str)]) {
    let status = &mut router.status;
    status.withheld = denied.iter().map(|(port, _)| port.mac.clone()).collect();
    let Some((_, reason)) = denied.first() else {
        status.conditions.remove(PORTS_PLUGGED);
        return;
    };
    let message = format!("not plugged in: {}", status.withheld.join(", "));
    cx.event(EventType::Warning, reason, message.clone());
    let conditions = &mut status.conditions;
    conditions.set(cx.now(), PORTS_PLUGGED, ConditionStatus::False, reason, message);
}

/// Whether a withheld port could be plugged in now.
pub(crate) async fn is_one_free(cx: &Cx, router: &Router) -> bool {
    let mut ports = router.spec.ports.clone();
    ports.retain(|port| router.status.withheld.contains(&port.mac));
    let judged = judge(cx, &router.metadata.name, &ports).await;
    judged.is_ok_and(|judged| !judged.own.is_empty())
}

/// The ports to plug in.
pub(crate) fn wanted(router: &Router) -> Vec<Port> {
    let mut ports = router.spec.ports.clone();
    ports.retain(|port| !router.status.withheld.contains(&port.mac));
    ports
}

/// The MAC addresses of ports, for comparisons.
pub(crate) fn macs(ports: &[Port]) -> BTreeSet<String> {
    ports.iter().map(|port| port.mac.clone()).collect()
}
