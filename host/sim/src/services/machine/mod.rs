//! Machines in the manner of Gardener's drivers: one call creates a VM, sets it up and turns it on, and its
//! node joins a cluster by itself.

use std::time::Duration;

use polity_clouds::catalogue::Named;
use polity_clouds::catalogue::machine::{self, CREATE};
use polity_core::call::CloudRequest;
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Context, Service};
use crate::config::Machines as MachineConfig;
use crate::config::scenario::Quirk;
use crate::event::{Call, Event, MachineMade};
use crate::hypervisor::effects::Happened;
use crate::hypervisor::vm::{Vm, id_of_provider, provider_id};
use crate::hypervisor::{Hypervisor, no_vm};
use crate::kernel::call::text;
use crate::kernel::kept::{Note, Table};

pub(crate) struct Machines {
    config: MachineConfig,
    /// The machines, by the number of their VM.
    machines: Table<u64, Machine>,
}

/// The state of a machine in addition to that of its VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Machine {
    node_name: String,
    /// Whether `machine.initialize` has nothing to do.
    initialized: bool,
    /// When the cloud begins to show it.
    #[serde(default)]
    shown_from: u64,
}

impl Machines {
    pub(crate) fn new(config: MachineConfig) -> Self {
        Machines {
            config,
            machines: Table::default(),
        }
    }

    /// Creates a machine. It exists at once and is turned on. A search may miss it for as long as `lag`.
    fn create(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        if let Some(earlier) = cx.vms.made_earlier(cx.kernel, call) {
            return Ok(self.created(cx.vms, earlier));
        }
        let place = cx.vms.place(call, "machine", "machine", cx.vms.unique_names)?;
        let vm = cx.vms.create(cx.kernel, cx.at, call, place);
        let name = call.text("name").to_owned();
        let token = call.arguments.get("bootstrapToken");
        let mut made = MachineMade {
            vm,
            node_name: self.config.node_name_of(&name, vm),
            name,
            stamp: call.stamp(),
            token: token.map(|token| cx.kernel.digest(token)),
            joins_after: None,
            never_joins: false,
        };
        let mut shown_from = cx.at;
        match &call.plan.quirk {
            Some(Quirk::JoinsAfter(after)) => made.joins_after = Some(*after),
            Some(Quirk::NeverJoins) => made.never_joins = true,
            Some(Quirk::NodeName(name)) => made.node_name.clone_from(name),
            Some(Quirk::ShowsAfter(after)) => shown_from += after,
            _ => {}
        }
        let machine = Machine {
            node_name: made.node_name.clone(),
            initialized: !self.config.needs_initialization,
            shown_from,
        };
        self.machines.insert(vm, machine);
        cx.kernel.announce(Event::MachineMade(made));
        cx.vms.start_created(cx.kernel, cx.at, call, vm);
        Ok(self.created(cx.vms, vm))
    }

    /// Reads a machine: by the cloud's id if the caller knows it, which misses it only before the cloud shows it, otherwise by
    /// name, which may miss it at any time.
    fn status(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let then = cx.kernel.look(cx.at, &call.caller.owner);
        let vm = match machine_id(&call.arguments) {
            Some(_) => self.by_id(cx, call)?,
            None => self.by_name(cx, call, |vm| vm.as_of(then).is_some_and(|v| !v.gone))?,
        };
        let seen = vm.at_least_first(then).filter(|version| !version.gone);
        seen.ok_or_else(|| no_machine(&call.arguments))?;
        let machine = &self.machines[&vm.number];
        Ok(json!({
            "providerID": provider_id(vm.number),
            "nodeName": machine.node_name,
            "initialized": machine.initialized,
        }))
    }

    /// Removes a machine at once. A deletion sees the present state, without lag, but no machine that is not shown yet.
    fn delete(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let number = self.present(cx, call)?;
        cx.vms.note(cx.at, &call.operation, Happened::Done, number);
        cx.vms.set_power(cx.kernel, cx.at, number, None);
        cx.kernel.mark_dirty();
        Ok(json!({}))
    }

    /// Removes a machine of another owner of the tenant, if it still belongs to the owner that the caller names.
    fn delete_orphan(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let wanted = machine_id(&call.arguments).unwrap_or_default();
        let is_meant = |vm: &&Vm| {
            provider_id(vm.number) == wanted
                && self.shows(vm.number, cx.at)
                && vm.exists()
                && call.caller.sees(&vm.stamp)
                && vm.stamp.tenant == call.caller.tenant
                && vm.stamp.owner == call.text("owner")
        };
        let vm = cx.vms.all().find(is_meant).map(|vm| vm.number);
        let number = vm.ok_or_else(|| no_machine(&call.arguments))?;
        cx.vms.note(cx.at, &call.operation, Happened::Done, number);
        cx.vms.set_power(cx.kernel, cx.at, number, None);
        cx.kernel.mark_dirty();
        Ok(json!({}))
    }

    /// Sets a machine up. Like a deletion it sees the present state.
    fn initialize(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let number = self.present(cx, call)?;
        if let Some(machine) = self.machines.get_mut(&number) {
            machine.initialized = true;
        }
        cx.kernel.mark_dirty();
        Ok(json!({}))
    }

    /// Lists the machines of the caller's tenant, or those of one owner in it. It may lag behind.
    fn list(&self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let then = cx.kernel.look(cx.at, &call.caller.owner);
        let owner = call.arguments.get("owner").and_then(Value::as_str);
        let is_listed = |vm: &&Vm| {
            self.shows(vm.number, cx.at)
                && call.caller.sees(&vm.stamp)
                && vm.stamp.tenant == call.caller.tenant
                && owner.is_none_or(|owner| vm.stamp.owner == owner)
                && vm.as_of(then).is_some_and(|version| !version.gone)
        };
        let row =
            |vm: &Vm| json!({"name": vm.name, "providerID": provider_id(vm.number), "owner": vm.stamp.owner});
        let machines: Vec<Value> = cx.vms.all().filter(is_listed).map(row).collect();
        let is_too_long = |longest: u64| machines.len() as u64 > longest;
        if self.config.longest_list.is_some_and(is_too_long) {
            let message = format!("the list has {} machines, which are too many", machines.len());
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        Ok(json!({"machines": machines}))
    }

    /// The machine that a change is about.
    fn present(&self, cx: &Context<'_>, call: &Call) -> Result<u64, Failure> {
        let vm = match machine_id(&call.arguments) {
            Some(_) => self.by_id(cx, call)?,
            None => self.by_name(cx, call, Vm::exists)?,
        };
        let number = Some(vm.number).filter(|_| vm.exists());
        number.ok_or_else(|| no_machine(&call.arguments))
    }

    fn by_id<'a>(&self, cx: &'a Context<'_>, call: &Call) -> Result<&'a Vm, Failure> {
        let vm = cx.vms.visible(&call.caller, id(&call.arguments))?;
        if self.shows(vm.number, cx.at) {
            Ok(vm)
        } else {
            Err(no_machine(&call.arguments))
        }
    }

    /// The caller's own machine of this name.
    fn by_name<'a>(
        &self,
        cx: &'a Context<'_>,
        call: &'a Call,
        there: impl Fn(&Vm) -> bool,
    ) -> Result<&'a Vm, Failure> {
        let name = call.text("name");
        let mut own = cx.vms.own(&call.caller);
        let is = |vm: &&Vm| vm.name == name && self.shows(vm.number, cx.at) && there(vm);
        own.find(is).ok_or_else(|| no_machine(&call.arguments))
    }
}

impl Service for Machines {
    fn operations(&self, visible_within: Duration) -> Vec<Named> {
        machine::operations(visible_within)
    }

    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![("machines", &mut self.machines)]
    }

    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        match id(&request.arguments) {
            "" => Some(text(&request.arguments, "name").to_owned()),
            id => cx.vms.name_of(id),
        }
    }

    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        match call.operation.as_str() {
            CREATE => self.create(cx, call),
            machine::STATUS => self.status(cx, call),
            machine::DELETE => self.delete(cx, call),
            machine::DELETE_ORPHAN => self.delete_orphan(cx, call),
            machine::INITIALIZE => self.initialize(cx, call),
            machine::LIST => self.list(cx, call),
            machine::VOLUMES => Ok(volumes(&call.arguments)),
            _ => Err(call.unknown()),
        }
    }

    fn on_event(&mut self, _: &mut Context<'_>, event: &Event) {
        if let Event::Forgotten { vm } = event {
            self.machines.remove(vm);
        }
    }

    /// Whether the VM is a machine, and the cloud shows it.
    fn shows(&self, vm: u64, now: u64) -> bool {
        self.machines
            .get(&vm)
            .is_some_and(|machine| machine.shown_from <= now)
    }

    fn created(&self, _: &Hypervisor, vm: u64) -> Value {
        let node = &self.machines[&vm].node_name;
        json!({"providerID": provider_id(vm), "nodeName": node, "lastKnownState": format!("made as vm-{vm}")})
    }
}

/// The id `vm-7` in the provider's id of the arguments; empty if there is none or it is of another cloud.
fn id(arguments: &Value) -> &str {
    machine_id(arguments).map(id_of_provider).unwrap_or_default()
}

/// The ids of volumes: the cloud attaches every volume of CSI.
fn volumes(arguments: &Value) -> Value {
    let volumes = arguments["volumes"].as_array().into_iter().flatten();
    let ids: Vec<&str> = volumes
        .filter_map(|volume| volume["csi"]["volumeHandle"].as_str())
        .collect();
    json!({"volumeIDs": ids})
}

fn machine_id(arguments: &Value) -> Option<&str> {
    arguments.get("providerID").and_then(Value::as_str)
}

fn no_machine(arguments: &Value) -> Failure {
    match machine_id(arguments) {
        Some(id) => no_vm(id),
        None => {
            let message = format!("no machine {:?}", text(arguments, "name"));
            Failure::new(Code::NotFound, message)
        }
    }
}

#[cfg(test)]
mod tests;
