//! One machine of a Kubernetes cluster, as Gardener's machine-controller-manager drives it: a VM is made through a
//! driver, joins as a node, is supervised, and is taken down again step by step.
//!
//! There is one step in a pass. Each writes down what comes next, so a crash resumes at the same step. The waits of the
//! drawings (conflict, short, medium, long) are `retry`, so that the retry policy owns these periods; the resync of a
//! machine that is as it should be, the rest of a frozen one and the look for a timeout are the policy's own.
//!
//! The flow is [`reconcile`]: a creation in doubt and the freeze come first, then the class, then either the
//! deletion flow or, on a live machine, health, node template and creation. Each stage has a file of its own;
//! [`edges`] says which arrows of the drawings there are.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod class;
mod create;
mod delete;
mod doubt;
mod driver;
pub mod edges;
mod health;
mod node;
mod outage;
mod safety;
mod sync;
mod token;

use std::ops::ControlFlow::{Break, Continue};

use mcm_api::{Config, FINALIZER, Machine, Phase};
use polity_sdk::prelude::*;

pub use edges::manifest;
/// A pass of this policy.
pub type Cx = Context<Machine, Config>;

/// Which action next?
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let mut machine = cx.object_mut();
    let made = match doubt::resolve(&cx, &mut machine)? {
        Break(wait) => return Ok(wait),
        Continue(made) => made,
    };
    if let Break(wait) = safety::check(&cx, &mut machine).await? {
        return Ok(wait);
    }
    cx.note("MCM-R02");
    let class = match class::check(&cx, &mut machine).await {
        Break(wait) => return Ok(wait),
        Continue(class) => class,
    };
    if machine.metadata.deleting() {
        notes(&cx, ["MCM-R07", "MCM-R08"]);
        let end = delete::tear_down(&cx, &mut machine).await;
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
        let wake = match health::supervise(&cx, &mut machine).await {
            Break(wait) => {
                notes(&cx, ["MCM-R24x", "MCM-R22"]);
                return Ok(wait);
            }
            Continue(wake) => wake,
        };
        cx.note("MCM-R15");
        if let Break(wait) = sync::sync(&cx, &machine).await {
            cx.note("MCM-R17");
            // A conflict is tried again at once.
            if matches!(&wait, Next::Retry(retry) if retry.class == RetryClass::Short) {
                cx.note("MCM-R22");
            }
            return Ok(wait);
        }
        if machine.phase().is_some() {
            cx.note("MCM-R16");
            // H11 says how long.
            if let Some(period) = wake {
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

/// Nothing to do: a running machine is left alone; any other is waited for.
fn steady(cx: &Cx, machine: &Machine) -> Next {
    match machine.phase() {
        Some(Phase::Running) => Next::settled_for(cx.config().resync),
        _ => Next::retry(RetryClass::Long),
    }
}

fn notes<const N: usize>(cx: &Cx, ids: [&str; N]) {
    ids.into_iter().for_each(|id| cx.note(id));
}
