//! VMs in the manner of vSphere: they are cloned from templates, and reconfigured and turned on and off by
//! tasks, one at a time.

mod clone;

use std::time::Duration;

use polity_clouds::catalogue::{Named, vm};
use polity_core::call::CloudRequest;
use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};

use super::{Context, Service};
use crate::config::{Network, SimConfig, TaskDurations, Template};
use crate::event::{Call, Event};
use crate::hypervisor::no_vm;
use crate::hypervisor::vm::Vm;
use crate::kernel::call::{TaskError, text};
use crate::kernel::tasks::Task;
use crate::power::Power;

/// The service. The VMs themselves are the hypervisor's.
pub(crate) struct Vms {
    templates: Vec<Template>,
    networks: Vec<Network>,
    durations: TaskDurations,
}

impl Vms {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Vms {
            templates: config.templates.clone(),
            networks: config.networks.clone(),
            durations: config.tasks.clone(),
        }
    }
}

impl Service for Vms {
    fn operations(&self, visible_within: Duration) -> Vec<Named> {
        vm::operations(visible_within)
    }

    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        let arguments = &request.arguments;
        match request.operation.as_str() {
            vm::CLONE => Some(text(arguments, "name").to_owned()),
            vm::FIND => {
                let uuid = text(arguments, "instanceUuid");
                let mut own = cx.vms.of_owner(&request.session.owner);
                own.find(|vm| vm.instance_uuid == uuid).map(|vm| vm.name.clone())
            }
            _ => cx.vms.name_of(text(arguments, "id")),
        }
    }

    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let takes = match call.operation.as_str() {
            vm::CLONE => return self.clone_vm(cx, call),
            vm::FIND => return find(cx, call),
            vm::RECONFIGURE => self.durations.reconfigure,
            vm::POWER_ON => self.durations.power_on,
            vm::POWER_OFF => self.durations.power_off,
            vm::DESTROY => self.durations.destroy,
            _ => return read(cx, call),
        };
        let id = call.text("id");
        let vm = cx.vms.visible(&call.caller, id)?;
        let number = Some(vm.number).filter(|_| vm.exists());
        let number = number.ok_or_else(|| no_vm(id))?;
        let told = call.arguments["metadata"].clone();
        cx.vms.change(cx.kernel, cx.at, call, number, (takes, told))
    }

    fn on_task_end(&mut self, cx: &mut Context<'_>, task: &Task) -> Result<(), TaskError> {
        let number = task.about;
        let power = match task.operation.as_str() {
            vm::CLONE => {
                cx.vms.end_clone(cx.kernel, cx.at, number);
                return Ok(());
            }
            vm::RECONFIGURE => {
                let metadata = task.told.as_str().map(str::to_owned);
                cx.vms.set_metadata(cx.at, number, metadata);
                return Ok(());
            }
            vm::POWER_ON => Some(Power::On),
            vm::POWER_OFF => Some(Power::Off),
            _ => None,
        };
        permitted(cx.vms.get(number).and_then(Vm::current).map(|v| v.power), power)?;
        cx.vms.set_power(cx.kernel, cx.at, number, power);
        if power == Some(Power::On) {
            cx.kernel.announce(Event::Started { vm: number });
        }
        Ok(())
    }
}

/// Checks whether a VM may go from one power state to another, or be removed.
fn permitted(existing: Option<Power>, wanted: Option<Power>) -> Result<(), TaskError> {
    let (existing, requested) = match (existing, wanted) {
        (Some(Power::On), Some(Power::On)) => (Power::On, Power::On),
        (Some(Power::Off), Some(Power::Off)) => (Power::Off, Power::Off),
        (Some(Power::On), None) => (Power::On, Power::Off),
        _ => return Ok(()),
    };
    let mut error = TaskError::new("InvalidPowerState", "the VM's power state does not allow it");
    error.details.insert("existing".to_owned(), json!(existing));
    error.details.insert("requested".to_owned(), json!(requested));
    Err(error)
}

fn read(cx: &mut Context<'_>, call: &Call) -> Answer {
    let then = cx.kernel.look(cx.at, &call.caller.owner);
    let id = call.text("id");
    let vm = cx.vms.visible(&call.caller, id)?;
    let version = vm.at_least_first(then).filter(|version| !version.gone);
    let version = version.ok_or_else(|| no_vm(id))?;
    Ok(match call.operation.as_str() {
        vm::GET => describe(vm),
        vm::METADATA => json!({"metadata": version.metadata}),
        vm::NICS => vm.describe_nics(version, then),
        vm::POWER => json!({"state": version.power}),
        _ => return Err(call.unknown()),
    })
}

fn find(cx: &mut Context<'_>, call: &Call) -> Answer {
    let then = cx.kernel.look(cx.at, &call.caller.owner);
    let uuid = call.text("instanceUuid");
    let mut own = cx.vms.of_owner(&call.caller.owner);
    let found = own.find(|vm| {
        let seen = vm.as_of(then).is_some_and(|version| !version.gone);
        vm.instance_uuid == uuid && call.caller.sees(&vm.stamp) && seen
    });
    found.map(describe).ok_or_else(|| {
        let message = format!("no VM with instance UUID {uuid:?}");
        Failure::new(Code::NotFound, message)
    })
}

fn describe(vm: &Vm) -> Value {
    json!({"id": vm.id(), "name": vm.name, "instanceUuid": vm.instance_uuid, "biosUuid": vm.bios_uuid})
}

#[cfg(test)]
mod tests;
