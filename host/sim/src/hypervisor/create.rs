//! VMs that are there as soon as the call that makes them is performed: machines, those of pools, and routers.

use polity_core::call::CloudRequest;

use crate::Sim;
use crate::hypervisor::vm::{Power, Vm};
use crate::kernel::draw::uuid;
use crate::kernel::tasks::TaskKind;
use crate::view::Happened;

impl Sim {
    /// With client tokens: the VM of this kind that an earlier call with this key has made.
    pub(crate) fn made_earlier(&self, request: &CloudRequest, is: impl Fn(u64) -> bool) -> Option<u64> {
        let key = request.key.as_deref().filter(|_| self.config.tokens)?;
        let owner = self.world.owners.get(&request.session.owner)?;
        let made = |number: &&u64| {
            let stamp = &self.world.vms[*number].stamp;
            is(**number) && stamp.key.as_deref() == Some(key) && self.sees(&request.session, stamp)
        };
        owner.vms.iter().find(made).copied()
    }

    /// A VM of this name appears at this place. What kind it is the caller says, and then turns it on.
    pub(crate) fn appear(&mut self, at: u64, request: &CloudRequest, name: &str, place: String) -> u64 {
        let owner = &request.session.owner;
        let number = self.world.number();
        let uuids = [
            owner.clone(),
            uuid(self.world.head.seed, &format!("{owner} {number}")),
        ];
        let stamp = self.stamp(request);
        let mut vm = Vm::new(number, name.to_owned(), place.clone(), uuids, stamp, at);
        vm.appear(at);
        self.world.vms.insert(number, vm);
        self.world.names.insert(place, number);
        self.world.owner(owner).vms.insert(number);
        number
    }

    /// A VM that has appeared is turned on, and with that `operation` is done.
    pub(crate) fn turn_on_at_once(&mut self, at: u64, operation: &'static str, number: u64) {
        self.set_power(at, number, Some(Power::On));
        self.note_at_once(at, operation, Happened::Submitted, number);
        self.note_at_once(at, operation, Happened::Done, number);
        self.wake_events(at, TaskKind::Clone, number);
        self.wake_events(at, TaskKind::PowerOn, number);
        self.dirty = true;
    }
}
