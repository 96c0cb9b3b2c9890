//! Finds what happened to the router, by comparing it with the recorded state, and enters it into its queue as
//! letters.

use polity_sdk::cloud::router;
use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::Router;
use crate::report::{LOOK_FAILED, REBUILD_TAKEN};
use crate::{Cx, ports};

const READ: &str = "request.polity.dev/read";
const REBUILD: &str = "request.polity.dev/rebuild";
/// The image for the next rebuild; without it, the image in the spec.
const REBUILD_IMAGE: &str = "rug.polity.dev/rebuild-image";

/// Enters what is new since the last pass: U, E, R, P, D. The start enters the first C, and after the end nothing is
/// entered.
pub(crate) async fn enter(cx: &Cx, router: &mut Router) {
    if router.status.machine_state == Some(State::Exit) {
        return;
    }
    if router.status.observed_generation != router.metadata.generation {
        router.status.observed_generation = router.metadata.generation;
        push(router, Action::Update);
    }
    enter_rebuild(cx, router).await;
    if let Some(nonce) = news(router, READ, router.status.read_request.as_ref()) {
        router.status.read_request = Some(nonce);
        push(router, Action::Read);
    }
    if is_due(cx, router) {
        // A withheld port that became free is plugged in like a changed port.
        let freed = ports::is_one_free(cx, router).await;
        push(router, if freed { Action::Update } else { Action::Poll });
    }
    if router.metadata.deleting() && !router.status.queue.contains(&Action::Delete) {
        push(router, Action::Delete);
    }
    let (length, most) = (router.status.queue.len(), cx.config().queue_warning_threshold);
    if length > most as usize {
        cx.event(
            EventType::Warning,
            "QueueTooLong",
            format!("{length} events wait"),
        );
    }
}

/// Drops requests that arrive during debugging, because people would not expect them to be carried out later.
pub(crate) fn drop_requests(router: &mut Router) {
    let (annotations, status) = (&router.metadata.annotations, &mut router.status);
    let requested = |name| annotations.get(name).cloned();
    status.read_request = requested(READ).or(status.read_request.take());
    status.rebuild_request = requested(REBUILD).or(status.rebuild_request.take());
}

/// Enters a rebuild, which removes a working VM. It does not begin without an image for the next VM: the request
/// remains, and the next pass checks it again.
async fn enter_rebuild(cx: &Cx, router: &mut Router) {
    let Some(nonce) = news(router, REBUILD, router.status.rebuild_request.as_ref()) else {
        return;
    };
    let image = router.metadata.annotations.get(REBUILD_IMAGE).cloned();
    let wanted = image.as_ref().unwrap_or(&router.spec.image_uuid);
    if let Err(failure) = cx.ask(router::image(wanted)).await {
        let reason = router::no_image(&failure).unwrap_or(LOOK_FAILED);
        let message = format!("the image {wanted:?}: {}", failure.message);
        cx.event(EventType::Warning, reason, message.clone());
        let conditions = &mut router.status.conditions;
        conditions.set(cx.now(), REBUILD_TAKEN, ConditionStatus::False, reason, message);
        return;
    }
    router.status.conditions.remove(REBUILD_TAKEN);
    (router.status.rebuild_request, router.status.rebuild_image_uuid) = (Some(nonce), image);
    push(router, Action::Rebuild);
}

/// The nonce of the request, if it is not the last handled one.
fn news(router: &Router, request: &str, taken: Option<&String>) -> Option<String> {
    let nonce = router.metadata.annotations.get(request);
    nonce.filter(|nonce| Some(*nonce) != taken).cloned()
}

/// Whether a poll is due. Only a resting machine is polled, and only if its VM was not given up.
fn is_due(cx: &Cx, router: &Router) -> bool {
    let status = &router.status;
    let resting = status.machine_state == Some(State::CalcAction) && status.queue.is_empty();
    resting && status.vm != Vm::Error && remaining(cx, router).is_zero()
}

/// The time until the next poll. It is never longer than the period, even if the clock was changed.
pub(crate) fn remaining(cx: &Cx, router: &Router) -> Duration {
    let period = cx.config().health_check_period.into();
    match (router.status.vm, router.status.next_poll) {
        (Vm::Error, _) => period,
        (_, next) => next.unwrap_or_default().since(cx.now()).min(period),
    }
}

/// Enters an event. An event directly after an equal one changes nothing.
fn push(router: &mut Router, event: Action) {
    if router.status.queue.last() != Some(&event) {
        router.status.queue.push(event);
    }
}
