//! Debugging: a person works on the router, so the policy makes no requests.

use polity_sdk::prelude::*;

use crate::object::Router;
use crate::report::DEBUGGING;
use crate::{Cx, events};

/// Whether the policy leaves the router alone: this router, its namespace, or all routers.
///
/// Requests that arrive meanwhile are dropped. A changed spec and a deletion are handled when debugging ends.
pub(crate) fn holds(cx: &Cx, router: &mut Router) -> bool {
    let (config, spec) = (cx.config(), &router.spec);
    let namespace = router.metadata.namespace.as_deref().unwrap_or_default();
    let reason = if spec.debug {
        &spec.debug_reason
    } else if config.debug || config.debug_tenants.iter().any(|tenant| tenant == namespace) {
        &config.debug_reason
    } else {
        router.status.conditions.remove(DEBUGGING);
        return false;
    };
    let (message, conditions) = (reason.clone().unwrap_or_default(), &mut router.status.conditions);
    conditions.set(cx.now(), DEBUGGING, ConditionStatus::True, "Debug", message);
    events::drop_requests(router);
    true
}
