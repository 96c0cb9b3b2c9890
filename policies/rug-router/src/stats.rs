//! STATS (RUG-26, RUG-X17).

use polity_sdk::cloud::machine::is_transient;
use polity_sdk::cloud::router::stats;
use polity_sdk::prelude::*;

use crate::Cx;
use crate::letters::{Action, State};
use crate::object::Router;

/// Reads how much traffic there was, and writes it down. A VM that does not say is not asked for ever: its life
/// matters more.
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
