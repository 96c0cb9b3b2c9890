//! Finds the VM of this machine (CAPV-12 to CAPV-18, CAPV-39, CAPV-47).
//!
//! Only a definite `not-found` counts as "there is none". Any other failure ends the pass and clears nothing.

use polity_sdk::cloud::vm::{self, Vm};
use polity_sdk::prelude::*;

use crate::Cx;
use crate::object::{Machine, Phase};

/// Finds the VM by the machine's uid if none is known, then checks that the known VM exists.
///
/// The VM of a clone that has just ended is known from its task. A search may not show that VM yet, and then a machine
/// that is being deleted would be released without its VM.
pub(crate) async fn find(cx: &Cx, machine: &mut Machine, cloned: Option<String>) -> Result<(), Failure> {
    if let Some(vm) = cloned {
        // A known VM is older: the clone was made because that VM was gone.
        cx.note("CAPV-39");
        machine.status.machine_ref = Some(vm);
    } else if machine.status.machine_ref.is_some() {
        cx.note("CAPV-15");
    } else {
        cx.note("CAPV-12");
        match cx
            .ask(vm::by_instance_uuid(&machine.metadata.uid))
            .await
            .found()?
        {
            Some(vm) => {
                check_identity(cx, machine, &vm)?;
                cx.note("CAPV-13");
                machine.status.machine_ref = Some(vm.id);
            }
            None => cx.note("CAPV-14"),
        }
    }
    verify(cx, machine).await
}

/// The drawing asks for the VM if the reference is *absent*, which can have no effect. It means *present*.
async fn verify(cx: &Cx, machine: &mut Machine) -> Result<(), Failure> {
    let Some(id) = &machine.status.machine_ref else {
        cx.note("CAPV-18");
        return Ok(());
    };
    match cx.ask(vm::get(id)).await.found()? {
        Some(vm) => {
            check_identity(cx, machine, &vm)?;
            cx.note("CAPV-17");
            machine.status.bios_uuid = vm.bios_uuid;
        }
        None => {
            cx.note("CAPV-16");
            if !machine.metadata.deleting() {
                let message = format!("the VM {id} is gone");
                cx.event(EventType::Warning, "VMNotFound", message.clone());
                machine.not_yet(cx, Phase::Missing, "NotFound", message);
            }
            machine.forget_vm();
        }
    }
    Ok(())
}

/// Fails if the VM has another instance UUID than the machine's uid. Such a VM may be a copy: a clone that a person makes of
/// the VM has its marks too, and only its UUID is another. vCenter may also change the UUID of a VM if it finds another VM
/// with the same one (`VirtualMachineConfigSpec.instanceUuid` of the vSphere Web Services API).
fn check_identity(cx: &Cx, machine: &mut Machine, vm: &Vm) -> Result<(), Failure> {
    let uid = &machine.metadata.uid;
    let Some(other) = vm.instance_uuid.as_ref().filter(|uuid| *uuid != uid) else {
        return Ok(());
    };
    cx.note("CAPV-47");
    let message = format!(
        "the VM {} has the instance UUID {other}, not the machine's uid {uid}, so it may be a copy and is not changed: \
         give it that instance UUID, or remove it",
        vm.id
    );
    machine.report(cx, "OtherInstanceUUID", &message);
    Err(Failure::new(Code::FailedPrecondition, message))
}
