//! One machine of a Kubernetes cluster, as Gardener's machine-controller-manager drives it. The policy creates a VM
//! through a driver, waits until it joins as a node, supervises the node, and finally drains and deletes it.
//!
//! A pass takes one step. Each step records the next one, so after a crash the workflow goes on at the same step. The
//! waits of the drawings (conflict, short, medium, long) are a `retry`, so the retry policy owns these periods. Three
//! waits are the policy's own: the resync of a machine that is as it should be, the wait of a frozen machine, and the
//! check for a timeout.
//!
//! The flow is [`reconcile`]. The freeze and a creation in doubt come first, then the class. Then follows the deletion
//! flow or, for a live machine, health, node template and creation. Each stage has a file of its own. [`edges`] lists
//! the arrows of the drawing.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod class;
mod create;
mod delete;
mod doubt;
pub mod edges;
mod health;
mod outage;
mod safety;
mod sync;

use std::ops::ControlFlow::{Break, Continue};

use mcm_api::{Config, FINALIZER, Machine, Phase};
use polity_sdk::prelude::*;

pub use edges::manifest;
/// A pass of this policy.
pub type Cx = Context<Machine, Config>;

/// Decides the next action for the machine.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let mut machine = cx.object_mut();
    if let Break(wait) = safety::check(&cx, &mut machine).await {
        return Ok(wait);
    }
    let made = match doubt::resolve(&cx, &mut machine)? {
        Break(wait) => return Ok(wait),
        Continue(made) => made,
    };
    cx.note("MCM-R02");
    let class = match class::check(&cx, &mut machine).await {
        Break(wait) => return Ok(wait),
        Continue(class) => class,
    };
    if machine.metadata.deleting() {
        notes(&cx, ["MCM-R07", "MCM-R08"]);
        let end = delete::tear_down(&cx, &mut machine, class.as_ref()).await;
        if !matches!(end, Ok(Next::Settled(_))) {
            cx.note("MCM-R18");
        }
        return end;
    }
    cx.note("MCM-R09");
    if !machine.is_held() {
        notes(&cx, ["MCM-R10", "MCM-R12", "MCM-R22"]);
        machine.metadata.finalizers.push(FINALIZER.to_owned());
        return Ok(Next::retry(RetryClass::Short));
    }
    cx.note("MCM-R11");
    if machine.is_linked() {
        cx.note("MCM-R13");
        let next_check = match health::supervise(&cx, &mut machine).await {
            Break(wait) => {
                notes(&cx, ["MCM-R24x", "MCM-R22"]);
                return Ok(wait);
            }
            Continue(next_check) => next_check,
        };
        cx.note("MCM-R15");
        if let Break(wait) = sync::sync(&cx, &machine).await {
            cx.note("MCM-R17");
            // A conflict is retried at once.
            if matches!(&wait, Next::Retry(retry) if retry.class == RetryClass::Short) {
                cx.note("MCM-R22");
            }
            return Ok(wait);
        }
        if machine.phase().is_some() {
            cx.note("MCM-R16");
            // H11 defines the time.
            if let Some(period) = next_check {
                return Ok(Next::after(period));
            }
            cx.note("MCM-R21");
            return Ok(steady(&cx, &machine));
        }
    }
    notes(&cx, ["MCM-R14", "MCM-R19"]);
    let end = create::bring_up(&cx, &mut machine, class.as_ref(), made).await;
    cx.note("MCM-R20");
    end
}

/// There is nothing to do. A running machine gets its resync; any other machine is waited for.
fn steady(cx: &Cx, machine: &Machine) -> Next {
    match machine.phase() {
        Some(Phase::Running) => Next::settled_for(cx.config().resync),
        _ => Next::retry(RetryClass::Long),
    }
}

/// Whether the cloud may not show the machine's VM yet.
fn is_hidden(cx: &Cx, machine: &Machine) -> bool {
    machine.is_hidden(cx.now(), cx.config().visible_within.into())
}

fn notes<const N: usize>(cx: &Cx, ids: [&str; N]) {
    ids.into_iter().for_each(|id| cx.note(id));
}
