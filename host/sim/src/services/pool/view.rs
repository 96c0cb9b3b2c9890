//! The state of pool machines that only a simulation can show.

use std::collections::BTreeMap;

use super::Pools;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::vm::Vm;

/// A machine of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMachine {
    /// The VM's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The name of its node.
    pub node: String,
    /// The uid of the object that it was added for.
    pub owner: String,
    /// Whether its agent has prepared it.
    pub initialized: bool,
    /// Whether packages are being installed, or it is about to reboot, or does not run.
    pub changing: bool,
    /// Whether packages are being installed, or it is about to reboot because its agent wants that.
    pub at_work: bool,
    /// The installed versions, by package.
    pub installed: BTreeMap<String, String>,
    /// How often its agent has rebooted it.
    pub reboots: u64,
}

impl Pools {
    /// All machines of pools, oldest first.
    pub(crate) fn views(&self, vms: &Hypervisor, now: u64) -> Vec<PoolMachine> {
        let members = self.members.iter();
        let there = members.filter_map(|(number, member)| Some((vms.get(*number)?, member)));
        let there = there.filter(|(vm, _): &(&Vm, _)| vm.exists());
        let machines = there.map(|(vm, member)| {
            let agent = member.agent.clone().unwrap_or_default();
            let working = agent.work.as_ref().is_some_and(|work| work.ended.is_none());
            let at_work = working || agent.ending.is_some();
            let runs = member.up.is_some_and(|up| up <= now);
            PoolMachine {
                id: vm.id(),
                name: vm.name.clone(),
                node: member.node_name.clone(),
                owner: vm.stamp.owner.clone(),
                initialized: agent.initialized,
                changing: at_work || !runs,
                at_work,
                installed: agent.installed,
                reboots: agent.reboots,
            }
        });
        machines.collect()
    }
}
