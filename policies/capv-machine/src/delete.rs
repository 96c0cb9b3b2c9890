//! Deletes the VM of a machine (CAPV-20, CAPV-21, CAPV-41).

use polity_sdk::cloud::vm::{self, Power};
use polity_sdk::prelude::*;

use crate::Cx;
use crate::backoff::{Change, submit};
use crate::object::{FINALIZER, Machine, Phase, TaskKind};

/// Stops the VM, destroys it, and releases the object when no VM is left. A running VM cannot be destroyed, so this
/// takes two tasks, one after the other.
pub(crate) async fn tear_down(cx: &Cx, machine: &mut Machine) -> Result<Next, Failure> {
    let Some(vm) = machine.status.machine_ref.clone() else {
        let held = machine.metadata.finalizers.iter().any(|held| held == FINALIZER);
        // Without the finalizer of this policy, the object waits for another controller.
        cx.note(if held { "CAPV-21" } else { "CAPV-41" });
        machine.metadata.remove_finalizer(FINALIZER);
        return Ok(Next::settled());
    };
    let (edge, act, message) = match cx.ask(vm::power(&vm)).await? {
        Power::On | Power::Suspended => ("CAPV-20a", vm::power_off(&vm), "the VM is being stopped"),
        Power::Off => {
            machine.forget_addresses();
            ("CAPV-20b", vm::destroy(&vm), "the VM is being destroyed")
        }
    };
    let (kind, phase) = (TaskKind::Delete, Phase::Deleting);
    submit(
        cx,
        machine,
        Change {
            edge,
            submit: act,
            kind,
            phase,
            reason: "Deleting",
            message,
        },
    )
    .await
}
