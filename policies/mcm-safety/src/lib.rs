//! Decides whether machines are left alone because the API server of their cluster cannot be reached.
//!
//! While the API server cannot be reached, every node looks unhealthy, and replacing machines would make things worse.
//! The policy asks the host whether the API server answers. When the API server has not answered for a while, the
//! `MachineSafety` is frozen. As soon as the API server answers again, the `MachineSafety` is thawed. The pass of each
//! machine reads the `MachineSafety`, so the change starts passes of the machines. The flow is [`reconcile`].
//!
//! While the API server answers, the policy also looks for VMs that belong to no Machine, if the `MachineSafety` names a
//! namespace (`sweep`).

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod config;
pub mod edges;
mod sweep;

use mcm_api::MachineSafety;
use polity_sdk::prelude::*;

pub use config::Config;
pub use edges::manifest;

/// A pass of this policy.
pub type Cx = Context<MachineSafety, Config>;

/// The condition: the API server answers.
const REACHABLE: &str = "Reachable";

/// Decides whether the machines are frozen.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let mut safety = cx.object_mut();
    if safety.metadata.deleting() {
        return Ok(Next::settled());
    }
    // An unknown answer counts as no: machines that rest are better than machines that are replaced without need.
    match cx.ask(cluster::reachable()).await {
        Ok(()) => {
            cx.note("MCM-F01");
            let next = thaw(&cx, &mut safety);
            sweep::sweep(&cx, &mut safety).await;
            Ok(next)
        }
        Err(failure) => {
            cx.note("MCM-F02");
            Ok(freeze(&cx, &mut safety, &failure))
        }
    }
}

/// The API server answers: machines are thawed. Nothing else is done until the next probe.
fn thaw(cx: &Cx, safety: &mut MachineSafety) -> Next {
    let status = &mut safety.status;
    if status.frozen {
        cx.note("MCM-F06");
        cx.event(EventType::Normal, "Thawed", "the API server answers again");
        status.frozen = false;
        status.since = Some(cx.now());
        status.reason = None;
    }
    status.down_since = None;
    let reachable = ConditionStatus::True;
    status
        .conditions
        .set(cx.now(), REACHABLE, reachable, "Answers", "");
    Next::settled_for(cx.config().probe_period)
}

/// The API server does not answer: after a while all machines are frozen.
fn freeze(cx: &Cx, safety: &mut MachineSafety, failure: &Failure) -> Next {
    let after = safety.spec.freeze_after.unwrap_or(cx.config().freeze_after);
    let status = &mut safety.status;
    let down_since = *status.down_since.get_or_insert(cx.now());
    let unreachable = ConditionStatus::False;
    let conditions = &mut status.conditions;
    conditions.set(
        cx.now(),
        REACHABLE,
        unreachable,
        "DoesNotAnswer",
        &failure.message,
    );
    if status.frozen {
        cx.note("MCM-F05");
    } else if cx.now().since(down_since) > Duration::from(after) {
        cx.note("MCM-F04");
        cx.event(EventType::Warning, "Frozen", &failure.message);
        status.frozen = true;
        status.since = Some(cx.now());
        status.reason = Some(failure.message.clone());
    } else {
        cx.note("MCM-F03");
    }
    Next::after(cx.config().probe_period_while_down)
}
