//! The hypervisor: all VMs, whichever service created them.
//!
//! Services create their VMs here and know them by number. They keep any further state of a VM themselves.
//! The hypervisor knows no service: it announces that the power of a VM has changed, and services react.

pub(crate) mod create;
pub(crate) mod effects;
pub(crate) mod vm;
pub(crate) mod work;

use std::collections::BTreeSet;

use polity_core::contract::{Code, Failure};

use crate::config::SimConfig;
use crate::event::{Event, Kernel};
use crate::kernel::between::Between;
use crate::kernel::call::Caller;
use crate::kernel::kept::{Note, Table};
use crate::power::Power;
use effects::Effect;
use vm::{Version, Vm};

/// All VMs, from the submission of a clone until nobody can see a trace of them.
pub(crate) struct Hypervisor {
    dhcp: Between,
    lag: u64,
    /// Whether VMs of the same scope must have different names.
    pub(crate) unique_names: bool,
    vms: Table<u64, Vm>,
    /// The VM that has a name, by scope: VMs that exist or are being cloned.
    names: Table<String, u64>,
    /// The VMs of each owner.
    owned: Table<String, BTreeSet<u64>>,
    /// All effects so far; `None` if nothing reads them.
    log: Option<Vec<Effect>>,
}

impl Hypervisor {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Hypervisor {
            dhcp: config.dhcp,
            lag: config.lag.0,
            unique_names: config.unique_names,
            vms: Table::default(),
            names: Table::default(),
            owned: Table::default(),
            log: Some(Vec::new()),
        }
    }

    /// Every table, and the name that it is stored under.
    pub(crate) fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![
            ("vms", &mut self.vms),
            ("vm names", &mut self.names),
            ("vm owners", &mut self.owned),
        ]
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Vm> {
        self.vms.get(&number)
    }

    /// All VMs, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Vm> {
        self.vms.values()
    }

    /// The VMs of one owner, oldest first.
    pub(crate) fn of_owner(&self, owner: &str) -> impl Iterator<Item = &Vm> {
        let own = self.owned.get(owner).into_iter().flatten();
        own.map(|number| &self.vms[number])
    }

    /// The caller's own VMs in the account in which it acts.
    pub(crate) fn own<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a Vm> {
        let own = self.of_owner(&caller.owner);
        own.filter(|vm| caller.sees(&vm.stamp) && caller.owns(&vm.stamp))
    }

    /// The VM of this id, if the caller may see it.
    pub(crate) fn visible(&self, caller: &Caller, id: &str) -> Result<&Vm, Failure> {
        let vm = vm::number(id).and_then(|number| self.vms.get(&number));
        let vm = vm.filter(|vm| !vm.creating() && caller.sees(&vm.stamp));
        let vm = vm.ok_or_else(|| no_vm(id))?;
        caller.check_owner(&vm.stamp, id)?;
        Ok(vm)
    }

    /// The existing VM of this name; the oldest if there are several.
    pub(crate) fn named(&self, name: &str) -> Option<&Vm> {
        self.vms.values().find(|vm| vm.exists() && vm.name == name)
    }

    /// The name of the VM with this id, for any caller.
    pub(crate) fn name_of(&self, id: &str) -> Option<String> {
        let vm = self.vms.get(&vm::number(id)?)?;
        Some(vm.name.clone())
    }

    /// Whether the VM exists and is on.
    pub(crate) fn is_on(&self, number: u64) -> bool {
        let version = self.vms.get(&number).and_then(Vm::current);
        version.is_some_and(|version| !version.gone && version.power == Power::On)
    }

    /// Whether a VM of this scope exists or is being created.
    pub(crate) fn is_taken(&self, place: &str) -> bool {
        self.names.contains_key(place)
    }

    /// Sets the power of a VM; `None` removes the VM.
    pub(crate) fn set_power(&mut self, kernel: &mut Kernel, at: u64, number: u64, power: Option<Power>) {
        let (dhcp, lag) = (self.dhcp, self.lag);
        let Some(vm) = self.vms.get_mut(&number) else {
            return;
        };
        let lease =
            |nth: usize| at + dhcp.pick(kernel.draw("dhcp", &vm.bios_uuid, at.wrapping_add(nth as u64)));
        let nics = vm.nics.iter().enumerate();
        let leases = nics.map(|(nth, nic)| (nic.dhcp && nic.connected).then(|| lease(nth)));
        let leases: Vec<_> = leases.collect();
        let edit = |version: &mut Version| match power {
            Some(Power::On) => {
                version.power = Power::On;
                version.leases = leases;
            }
            other => {
                version.gone = other.is_none();
                version.power = other.unwrap_or(Power::Off);
                version.leases.clear();
            }
        };
        vm.change(at, lag, edit);
        kernel.announce(Event::PowerChanged { vm: number, power });
        if power.is_none() {
            let place = vm.place.clone();
            self.free_name(&place, number);
            kernel.schedule(at + lag + 1, Event::Forgotten { vm: number });
        }
    }

    /// Sets the guest metadata.
    pub(crate) fn set_metadata(&mut self, at: u64, number: u64, metadata: Option<String>) {
        if let Some(vm) = self.vms.get_mut(&number) {
            vm.change(at, self.lag, |version| version.metadata = metadata);
        }
    }

    pub(crate) fn on_event(&mut self, kernel: &mut Kernel, at: u64, event: &Event) {
        match event {
            Event::Intervened { vm, does } => {
                if let Some(power) = does.power() {
                    self.set_power(kernel, at, *vm, power);
                }
            }
            Event::Forgotten { vm } => self.forget(*vm),
            _ => {}
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(vm) = self.vms.remove(&number) else {
            return;
        };
        self.free_name(&vm.place, number);
        self.owned.get_or_default(vm.stamp.owner).remove(&number);
    }

    fn free_name(&mut self, place: &str, number: u64) {
        if self.names.get(place) == Some(&number) {
            self.names.remove(place);
        }
    }
}

/// The failure for an id behind which the caller can see no VM.
pub(crate) fn no_vm(id: &str) -> Failure {
    Failure::new(Code::NotFound, format!("no VM {id:?}"))
}
