//! Somebody works on a router by hand: nothing is asked and nothing is done.

use polity_sdk::prelude::*;

use crate::object::Router;
use crate::report::DEBUGGING;
use crate::{Cx, events};

/// Whether the router is left alone: it, its namespace, or everything.
///
/// Requests that come meanwhile are dropped. A changed spec and a deletion are found when it is over.
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
    let message = reason.clone().unwrap_or_default();
    let conditions = &mut router.status.conditions;
    conditions.set(cx.now(), DEBUGGING, ConditionStatus::True, "Debug", message);
    events::drop_requests(router);
    true
}
