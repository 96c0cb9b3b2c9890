//! A Kubernetes cluster of machines in pools, in the manner of CAOS Orbiter. First the policy corrects the number of
//! machines and nodes. Then it brings their packages to the wanted versions, one node after another.
//!
//! The work on a machine is done by its node agent. The two communicate only through annotations of the Node, and the
//! agent changes nothing until it is allowed to. `status.changing` names the node that is changed: it is written one
//! pass before that node's flag is set, and cleared only after the flag was seen to be gone. So at most one node is
//! changed at a time, whatever crashes and whenever.
//!
//! The flow is [`reconcile`]. Each stage has a file of its own. [`edges`] lists the arrows of the drawing. A stage
//! that has something to do ends the pass: [`Stop`] holds the reason.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod change;
mod drain;
pub mod edges;
mod join;
mod prepare;
mod remove;
mod scale;
mod task;
mod update;
mod version;

use orbiter_api::{AT_ONCE, Because, Fleet, Orb, Phase, Stop};
use polity_sdk::prelude::*;

pub use edges::manifest;
pub use orbiter_api::Cx;

/// The condition: the cluster is as it should be.
const READY: &str = "Ready";

/// Decides the next action for the Orb.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let mut orb = cx.object_mut();
    if orb.metadata.deleting() {
        return Ok(remove::destroy(&cx, &mut orb).await);
    }
    let end = maintain(&cx, &mut orb).await;
    Ok(conclude(&cx, &mut orb, end))
}

/// Ends early where something must be done. If it reaches its end, the cluster is as it should be.
async fn maintain(cx: &Cx, orb: &mut Orb) -> Result<(), Stop> {
    let sense = orb
        .check()
        .map_err(|message| Failure::new(Code::InvalidArgument, message));
    sense.because("SpecInvalid")?;
    scale::doubt(cx)?;
    let fleet = Fleet::look(cx, orb).await?;
    task::follow(cx, orb, &fleet).await?;
    let drain = blocked(change::resume(cx, orb, &fleet).await)?;
    let end = repair(cx, orb, &fleet, drain.is_none()).await;
    and_then(drain, end)?;
    update::next(cx, orb, &fleet).await
}

/// Corrects the number of machines and nodes. While a node is being changed, no other node is removed.
async fn repair(cx: &Cx, orb: &mut Orb, fleet: &Fleet, may_remove: bool) -> Result<(), Stop> {
    remove::orphans(cx, fleet).await?;
    scale::add(cx, orb, fleet).await?;
    let drain = if may_remove {
        blocked(remove::surplus(cx, orb, fleet).await)?
    } else {
        None
    };
    let end = join_all_machines(cx, orb, fleet).await;
    and_then(drain, end)
}

async fn join_all_machines(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    prepare::install(cx, orb, fleet).await?;
    prepare::wait(cx, fleet)?;
    join::join(cx, orb, fleet).await
}

/// A drain in progress blocks only the removal of another node.
fn blocked(end: Result<(), Stop>) -> Result<Option<Stop>, Stop> {
    match end {
        Ok(()) => Ok(None),
        Err(stop) if stop.draining => Ok(Some(stop)),
        Err(stop) => Err(stop),
    }
}

/// The end of the work beside a drain.
fn and_then(drain: Option<Stop>, end: Result<(), Stop>) -> Result<(), Stop> {
    match (drain, end) {
        (None, end) => end,
        (Some(drain), Ok(())) => Err(drain),
        (Some(drain), Err(stop)) => Err(drain.beside(stop)),
    }
}

/// Records how the pass ended.
fn conclude(cx: &Cx, orb: &mut Orb, end: Result<(), Stop>) -> Next {
    let running = || {
        cx.note("ORB-28");
        Stop {
            next: Next::settled_for(cx.config().pause),
            ..Stop::wait(Period::ZERO, "Running", "")
        }
    };
    let (phase, status) = match &end {
        Ok(()) => (Phase::Running, ConditionStatus::True),
        Err(stop) if stop.degraded => (Phase::Degraded, ConditionStatus::False),
        Err(_) => (Phase::Maintaining, ConditionStatus::False),
    };
    let Stop {
        reason,
        message,
        next,
        ..
    } = end.err().unwrap_or_else(running);
    if phase == Phase::Degraded {
        cx.event(EventType::Warning, reason, &message);
    }
    orb.status.phase = Some(phase);
    orb.status
        .conditions
        .set(cx.now(), READY, status, reason, message);
    next
}
