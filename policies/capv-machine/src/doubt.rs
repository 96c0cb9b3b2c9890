//! Clones whose answer was lost (CAPV-36 to CAPV-38). They are resolved before everything else, also while the
//! machine is being deleted.

use std::ops::ControlFlow::{self, Break, Continue};

use polity_sdk::Resolution;
use polity_sdk::cloud::vm::{self, Cloned};
use polity_sdk::prelude::*;

use crate::object::{Machine, Phase, TaskKind};
use crate::{Cx, requeue};

/// Handles the outcome of the clone in doubt, if there is one.
pub(crate) fn resolve(cx: &Cx, machine: &mut Machine) -> Result<ControlFlow<Next>, Failure> {
    for clone in cx.pending().iter().filter(|act| act.operation == vm::CLONE) {
        match &clone.resolution {
            Resolution::Unknown(_) => {
                cx.note("CAPV-36");
                let message =
                    "the answer to the clone was lost, and the cloud cannot yet tell whether the clone runs";
                machine.not_yet(cx, Phase::Cloning, "WaitingForClone", message);
                return Ok(Break(requeue(cx)));
            }
            Resolution::Done(answer) => {
                let cloned = Cloned::read(answer)?;
                cx.note("CAPV-37");
                match cloned {
                    // The clone was sent because the old VM was gone. That pass could not record it.
                    Cloned::Task(task) => {
                        machine.forget_vm();
                        machine.track(task, TaskKind::Clone, clone.written());
                    }
                    // The task is forgotten already. Its VM is adopted as in CAPV-13.
                    Cloned::Vm(vm) => machine.status.machine_ref = Some(vm),
                }
            }
            Resolution::Absent => cx.note("CAPV-38"),
        }
    }
    Ok(Continue(()))
}
