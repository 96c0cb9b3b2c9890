//! One changing call in a pass, none for a while after a failed task.

use polity_sdk::machine::Submit;
use polity_sdk::prelude::*;

use crate::object::{Machine, Phase, TaskKind};
use crate::{Cx, requeue};

/// A change of the cloud, and what is written down once it is submitted.
pub(crate) struct Change<'a> {
    /// The edge that this change is.
    pub(crate) edge: &'a str,
    pub(crate) submit: Submit,
    pub(crate) kind: TaskKind,
    pub(crate) phase: Phase,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Submits the change and tracks its task, unless a failed task holds it back.
pub(crate) async fn submit(cx: &Cx, machine: &mut Machine, change: Change<'_>) -> Result<Next, Failure> {
    if let Some(until) = machine.status.retry_after.filter(|until| *until > cx.now()) {
        machine.status.phase = Some(Phase::BackingOff);
        return Ok(Next::after(until.since(cx.now())));
    }
    let task = cx.act(change.submit).await?;
    cx.note(change.edge);
    machine.status.retry_after = None;
    machine.track(task, change.kind, cx.now());
    machine.not_yet(cx, change.phase, change.reason, change.message);
    Ok(requeue(cx))
}

/// After a failed task: nothing is changed for the configured time.
pub(crate) fn arm(cx: &Cx, machine: &mut Machine) {
    let backoff = cx.config().failure_backoff;
    machine.status.retry_after = (!backoff.is_zero()).then(|| cx.now() + backoff.into());
}
