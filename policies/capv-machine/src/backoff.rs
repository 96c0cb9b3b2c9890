//! At most one change in a pass, and none for a while after a failed task (CAPV-43).

use polity_sdk::cloud::vm::Submit;
use polity_sdk::prelude::*;

use crate::object::{Machine, Phase, TaskKind};
use crate::{Cx, requeue};

/// A change of the cloud, and what is recorded after it was submitted.
pub(crate) struct Change<'a> {
    /// The edge that this change takes.
    pub(crate) edge: &'a str,
    pub(crate) submit: Submit,
    pub(crate) kind: TaskKind,
    pub(crate) phase: Phase,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Submits the change and tracks its task, unless a failed task delays it.
pub(crate) async fn submit(cx: &Cx, machine: &mut Machine, change: Change<'_>) -> Result<Next, Failure> {
    if let Some(until) = held_until(cx, machine) {
        cx.note("CAPV-43");
        machine.status.retry_after = Some(until);
        machine.status.phase = Some(Phase::BackingOff);
        return Ok(Next::after(until.since(cx.now())));
    }
    let task = cx.act(change.submit).await.inspect_err(|failure| {
        // An Event, because the writer of the object cannot see the failure of the pass.
        cx.event(EventType::Warning, "NotAccepted", &failure.message);
    })?;
    cx.note(change.edge);
    machine.status.retry_after = None;
    machine.track(task, change.kind, cx.now());
    machine.not_yet(cx, change.phase, change.reason, change.message);
    Ok(requeue(cx))
}

/// The time until which a failed task delays changes. It is at most the backoff from now on, because the clock may
/// have been set back and the backoff may have become shorter.
fn held_until(cx: &Cx, machine: &Machine) -> Option<Time> {
    let latest = cx.now() + cx.config().failure_backoff.into();
    let until = machine.status.retry_after?.min(latest);
    (until > cx.now()).then_some(until)
}

/// Delays changes after a failed task by the configured time.
pub(crate) fn arm(cx: &Cx, machine: &mut Machine) {
    let backoff = cx.config().failure_backoff;
    machine.status.retry_after = (!backoff.is_zero()).then(|| cx.now() + backoff.into());
}
