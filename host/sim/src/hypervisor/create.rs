//! How VMs are created, and how a VM is found again whose create is in doubt.

use polity_core::contract::{Code, Failure};

use serde_json::json;

use super::Hypervisor;
use super::effects::Happened;
use super::vm::{Nic, Vm};
use crate::event::{Call, Event, Kernel};
use crate::kernel::call::Caller;
use crate::power::Power;

impl Hypervisor {
    /// With client tokens: the VM that an earlier call of this operation with this key has created.
    pub(crate) fn made_earlier(&self, kernel: &Kernel, call: &Call) -> Option<u64> {
        let key = call.key.as_deref().filter(|_| kernel.settings().client_tokens)?;
        let mut own = self.of_owner(&call.caller.owner);
        let made = own.find(|vm| {
            let stamp = &vm.stamp;
            vm.made_by == call.operation && stamp.key.as_deref() == Some(key) && call.caller.sees(stamp)
        });
        made.map(|vm| vm.number)
    }

    /// The scope in which the name is unique among the VMs of the caller's tenant that stand `among` these.
    /// If it must be `unique` and one of this `kind` has the name, it is refused.
    pub(crate) fn place(
        &self,
        call: &Call,
        among: &str,
        kind: &str,
        unique: bool,
    ) -> Result<String, Failure> {
        let name = call.text("name");
        let place = call.caller.place(json!([among, call.caller.tenant, name]));
        if unique && self.is_taken(&place) {
            let message = format!("there is a {kind} {name:?} already");
            Err(Failure::new(Code::AlreadyExists, message))
        } else {
            Ok(place)
        }
    }

    /// Creates a VM of this name at once, turned off. The caller sets its kind and then starts it.
    pub(crate) fn create(&mut self, kernel: &mut Kernel, at: u64, call: &Call, place: String) -> u64 {
        let owner = &call.caller.owner;
        let number = kernel.number();
        let uuids = [owner.clone(), kernel.uuid(&format!("{owner} {number}"))];
        let mut vm = Vm::new(number, call, place, uuids, at);
        vm.create(at);
        self.insert(vm);
        number
    }

    /// Turns a created VM on, which completes its create.
    pub(crate) fn start_created(&mut self, kernel: &mut Kernel, at: u64, call: &Call, number: u64) {
        self.set_power(kernel, at, number, Some(Power::On));
        self.note(at, &call.operation, Happened::Submitted, number);
        self.note(at, &call.operation, Happened::Done, number);
        kernel.announce(Event::Created { vm: number });
        kernel.announce(Event::Started { vm: number });
        kernel.mark_dirty();
    }

    /// Adds a VM that a task is about to clone. It is not visible yet.
    pub(crate) fn begin_clone(&mut self, at: u64, call: &Call, clone: Clone) {
        let mut vm = Vm::new(clone.number, call, clone.place, clone.uuids, at);
        vm.nics = clone.nics;
        vm.busy = Some(clone.task);
        self.insert(vm);
    }

    /// Ends the clone: the VM exists, powered off.
    pub(crate) fn end_clone(&mut self, kernel: &mut Kernel, at: u64, number: u64) {
        if let Some(vm) = self.vms.get_mut(&number) {
            vm.create(at);
            kernel.announce(Event::Created { vm: number });
        }
    }

    fn insert(&mut self, vm: Vm) {
        let number = vm.number;
        self.names.insert(vm.place.clone(), number);
        self.owned.get_or_default(vm.stamp.owner.clone()).insert(number);
        self.vms.insert(number, vm);
    }

    /// The VM that a create has made since then, among those that the caller sees now.
    pub(crate) fn trace(&self, caller: &Caller, trace: &Trace<'_>) -> Option<u64> {
        let mut own = self.of_owner(&caller.owner);
        let found = own.find(|vm| {
            vm.submitted >= trace.since
                && vm.made_by == trace.operation
                && caller.sees(&vm.stamp)
                && vm.as_of(trace.seen).is_some_and(|version| !version.gone)
                && trace.is(&vm.name, vm.stamp.key.as_deref())
        });
        found.map(|vm| vm.number)
    }
}

/// The parts of a clone.
pub(crate) struct Clone {
    pub(crate) number: u64,
    /// The task that clones it.
    pub(crate) task: u64,
    /// The scope in which its name is unique.
    pub(crate) place: String,
    /// The UUIDs of the instance and of the BIOS.
    pub(crate) uuids: [String; 2],
    pub(crate) nics: Vec<Nic>,
}

/// What is known of a create in doubt. Times are in Unix milliseconds.
pub(crate) struct Trace<'a> {
    pub(crate) operation: &'a str,
    pub(crate) intent: &'a str,
    /// With client tokens the key identifies the create, whatever the clock of the host that wrote the entry
    /// shows.
    pub(crate) key: Option<&'a str>,
    /// The earliest time at which it could have been made.
    pub(crate) since: u64,
    /// The moment that the look sees.
    pub(crate) seen: u64,
}

impl Trace<'_> {
    /// Whether a thing is the created one: by the key with client tokens, otherwise by the name.
    pub(crate) fn is(&self, name: &str, key: Option<&str>) -> bool {
        match self.key {
            Some(_) => self.key == key,
            None => self.intent == name,
        }
    }
}
