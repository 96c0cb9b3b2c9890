//! What happened to the router, as letters in its queue: found by comparing it with what was taken note of.

use polity_sdk::cloud::router;
use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::Router;
use crate::report::{LOOK_FAILED, REBUILD_TAKEN};
use crate::{Cx, ports};

const READ: &str = "request.polity.dev/read";
const REBUILD: &str = "request.polity.dev/rebuild";
/// The image of the next rebuild; without it, that of the spec.
const REBUILD_IMAGE: &str = "rug.polity.dev/rebuild-image";

/// Enters what is new since the last pass: U, E, R, P, D. The first C is entered by the start, and after the end
/// nothing is.
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
        // A port that has become free since is plugged in as a change of the router would be.
        let freed = ports::is_one_free(cx, router).await;
        push(router, if freed { Action::Update } else { Action::Poll });
    }
    if router.metadata.deleting() && !router.status.queue.contains(&Action::Delete) {
        push(router, Action::Delete);
    }
    let (length, most) = (router.status.queue.len(), cx.config().queue_warning_threshold);
    if length > most as usize {
        let message = format!("{length} events wait");
        cx.event(EventType::Warning, "QueueTooLong", message);
    }
}

/// Requests that come while somebody works on the router are not carried out afterwards, when nobody expects it.
pub(crate) fn drop_requests(router: &mut Router) {
    let (annotations, status) = (&router.metadata.annotations, &mut router.status);
    for (request, taken) in [
        (READ, &mut status.read_request),
        (REBUILD, &mut status.rebuild_request),
    ] {
        *taken = annotations.get(request).cloned().or(taken.take());
    }
}

/// A rebuild begins by taking a VM down that works. It is not begun without an image for the next one: the request
/// stands, and is looked at again in the next pass.
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
    router.status.rebuild_request = Some(nonce);
    router.status.rebuild_image_uuid = image;
    push(router, Action::Rebuild);
}

/// The request's nonce, if it is not the one that was taken last.
fn news(router: &Router, request: &str, taken: Option<&String>) -> Option<String> {
    let nonce = router.metadata.annotations.get(request);
    nonce.filter(|nonce| Some(*nonce) != taken).cloned()
}

/// Only a machine that rests is polled, and none that was given up.
fn is_due(cx: &Cx, router: &Router) -> bool {
    let status = &router.status;
    let resting = status.machine_state == Some(State::CalcAction) && status.queue.is_empty();
    resting && status.vm != Vm::Error && remaining(cx, router).is_zero()
}

/// How long until the next poll; never longer than the period, whatever became of the clock.
pub(crate) fn remaining(cx: &Cx, router: &Router) -> Duration {
    let period = cx.config().health_check_period.into();
    match (router.status.vm, router.status.next_poll) {
        (Vm::Error, _) => period,
        (_, next) => next.unwrap_or_default().since(cx.now()).min(period),
    }
}

/// An event behind an equal one changes nothing.
fn push(router: &mut Router, event: Action) {
    if router.status.queue.last() != Some(&event) {
        router.status.queue.push(event);
    }
}
