//! One virtual machine of a vSphere-style cloud: from nothing to *running with addresses*, and back to nothing.
//!
//! Every change of the cloud is a task. The policy never waits inside a pass: it records the task, asks to be called
//! again, and does nothing else until that task has ended. So a pass makes at most one change, and a machine has at
//! most one task in flight.
//!
//! The flow is [`reconcile`]. Each stage has a file of its own. [`edges`] lists the arrows of the drawing (CAPV-01 to
//! CAPV-51).

mod backoff;
mod bootstrap;
#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod config;
mod delete;
mod doubt;
pub mod edges;
mod live;
mod lookup;
mod metadata;
mod object;
mod task;

use std::ops::ControlFlow::{Break, Continue};

use polity_sdk::prelude::*;

pub use config::Config;
pub use edges::manifest;
pub use object::{
    Bootstrap, CloneSpec, Device, Machine, MachineSpec, MachineStatus, NetworkSpec, NicStatus, Phase, Route,
    TaskKind,
};

/// A pass of this policy.
pub type Cx = Context<Machine, Config>;

/// Decides the next action for the machine.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let mut machine = cx.object_mut();
    if machine.in_maintenance() {
        cx.note("CAPV-45");
        return Ok(requeue(&cx));
    }
    if let Break(wait) = doubt::resolve(&cx, &mut machine)? {
        return Ok(wait);
    }
    let cloned = match task::check(&cx, &mut machine).await? {
        Break(wait) => return Ok(wait),
        Continue(cloned) => cloned,
    };
    cx.note("CAPV-11");
    lookup::find(&cx, &mut machine, cloned).await?;
    if machine.metadata.deleting() {
        cx.note("CAPV-19");
        delete::tear_down(&cx, &mut machine).await
    } else {
        cx.note("CAPV-22");
        live::bring_up(&cx, &mut machine).await
    }
}

/// The "requeue" of the drawing: a new pass with new reads, after the default period.
fn requeue(cx: &Cx) -> Next {
    Next::after(cx.config().requeue_period)
}
