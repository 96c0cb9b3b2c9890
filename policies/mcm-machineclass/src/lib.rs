//! Keeps a class of machines for as long as a machine uses it: without the class, a machine can neither be created nor, by
//! default, deleted. A class that is used has a finalizer. A deletion of the class then waits for the last machine.
//!
//! Machines alone count, those that are being deleted too. The template of a MachineSet does not.
//!
//! Source: `reconcileClusterMachineClass` and `findMachinesForClass` of machine-controller-manager
//! (`pkg/util/provider/machinecontroller/machineclass.go`, `machineclass_util.go`). There, too, a class that nobody uses loses
//! its finalizer, whether it is being deleted or not.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
pub mod edges;

use mcm_api::{CLASS_FINALIZER, Machine, MachineClass};
use polity_sdk::prelude::*;

pub use edges::manifest;

/// A pass of this policy.
pub type Cx = Context<MachineClass>;

/// Decides whether the class has the finalizer. A machine that comes or goes begins the next pass.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let machines = cluster::objects::<Machine>().keep(&["spec.class"]);
    let machines = cx.ask(machines).await?;
    let mut class = cx.object_mut();
    let is_used = machines.iter().any(|machine| class.is_used_by(machine));
    let edge = match (is_used, class.is_held()) {
        // Nothing that is being deleted gets another finalizer.
        (true, _) if class.metadata.deleting() => "MCM-K03",
        (true, true) => "MCM-K02",
        (true, false) => {
            class.metadata.finalizers.push(CLASS_FINALIZER.to_owned());
            "MCM-K01"
        }
        (false, true) => {
            class.metadata.remove_finalizer(CLASS_FINALIZER);
            "MCM-K04"
        }
        (false, false) => "MCM-K05",
    };
    cx.note(edge);
    Ok(Next::settled())
}
