//! STATS (RUG-26, RUG-X17).

use polity_sdk::cloud::machine::is_transient;
use polity_sdk::cloud::router::stats;
use polity_sdk::prelude::*;

use crate::Cx;
use crate::letters::{Action, State};
use crate::object::Router;

/// Reads the traffic of the VM and records it. If the VM does not report it, the policy goes on instead of asking for
/// ever: the life of the VM matters more.
pub(crate) async fn read(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    let id = router.status.instance.clone().unwrap_or_default();
    let edge = match cx.ask(stats(&id)).await {
        Ok(read) => {
            router.status.traffic = read.traffic;
            router.status.traffic_time = Some(cx.now());
            "RUG-26"
        }
        Err(failure) if is_transient(&failure) => return Err(failure),
        Err(failure) => {
            cx.event(EventType::Warning, "StatsFailed", failure.message);
            "RUG-X17"
        }
    };
    router.status.action = Action::Poll;
    Ok(router.take(cx, edge, State::CalcAction))
}
