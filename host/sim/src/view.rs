//! What only a simulation can tell: all there is, and all that happened.

use std::collections::BTreeMap;

use crate::Sim;
use crate::config::scenario::Intervention;
use crate::hypervisor::vm::{self, Power};
use crate::kernel::tasks::Task;

/// A VM that exists or is being cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmView {
    /// `vm-7`
    pub id: String,
    /// Which is the intent of its clone as well.
    pub name: String,
    /// The primary's uid, in the shipped policy.
    pub instance_uuid: String,
    /// The primary's uid, as the host said.
    pub owner: String,
    /// The tenant that the primary belonged to.
    pub tenant: String,
    /// The account that it is in; none for the cloud's own.
    pub account: Option<String>,
    /// The key of the pending entry.
    pub key: Option<String>,
    /// Off while it is being cloned.
    pub power: Power,
    /// Its clone is running.
    pub creating: bool,
    /// Guest metadata.
    pub metadata: Option<String>,
    /// Addresses that anybody can use, in the order of its NICs.
    pub ips: Vec<String>,
    /// When its clone was submitted; Unix milliseconds.
    pub submitted: u64,
}

/// Something that happened in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Unix milliseconds.
    pub at: u64,
    /// `vm.clone` and so on; of an intervention, the operation that would have done it.
    pub operation: String,
    /// What happened.
    pub what: Happened,
    /// The primary's uid.
    pub owner: String,
    /// The tenant that the primary belonged to.
    pub tenant: String,
    /// Creates: the key of the pending entry.
    pub key: Option<String>,
    /// The VM's name; of a create, its intent.
    pub intent: String,
    /// On which VM; a clone that failed has left none.
    pub vm: String,
    /// By which task; none for an intervention, and for what is done at once.
    pub task: Option<String>,
}

/// How far a task got, or that there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A call started the task.
    Submitted,
    /// The task succeeded.
    Done,
    /// The task failed with this fault.
    Failed(String),
    /// Somebody else did it.
    Intervened(Intervention),
}

/// A machine of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMachine {
    /// The VM's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What its node is called.
    pub node: String,
    /// The uid of the object that it was added for.
    pub owner: String,
    /// Its agent has prepared it.
    pub initialized: bool,
    /// Packages are being installed, or it is about to reboot, or does not run.
    pub changing: bool,
    /// Packages are being installed, or it is about to reboot because its agent wants that.
    pub at_work: bool,
    /// What is installed, by package.
    pub installed: BTreeMap<String, String>,
    /// How often its agent has rebooted it.
    pub reboots: u64,
}

impl Sim {
    /// All machines of pools at this moment, the oldest first.
    pub fn pool_machines(&mut self, now_ms: u64) -> Vec<PoolMachine> {
        let now = self.advance(now_ms);
        let there = self
            .world
            .members
            .iter()
            .filter(|(number, _)| self.world.vms[number].exists());
        let machines = there.map(|(number, member)| {
            let (vm, agent) = (&self.world.vms[number], member.agent.clone().unwrap_or_default());
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

    /// All VMs at this moment, clones in progress among them, the oldest first.
    pub fn vms(&mut self, now_ms: u64) -> Vec<VmView> {
        let now = self.advance(now_ms);
        let there = self.world.vms.values().filter(|vm| vm.creating() || vm.exists());
        there
            .map(|vm| VmView {
                id: vm.id(),
                name: vm.name.clone(),
                instance_uuid: vm.instance_uuid.clone(),
                owner: vm.stamp.owner.clone(),
                tenant: vm.stamp.tenant.clone(),
                account: vm.stamp.account.clone(),
                key: vm.stamp.key.clone(),
                power: vm.current().map_or(Power::Off, |v| v.power),
                creating: vm.creating(),
                metadata: vm.current().and_then(|v| v.metadata.clone()),
                ips: vm.leased(now),
                submitted: vm.submitted,
            })
            .collect()
    }

    /// What the sessions that have not expired are known by.
    pub fn session_tokens(&self) -> impl Iterator<Item = &str> {
        self.world.sessions.keys().map(String::as_str)
    }

    /// Whether the scenario lets the API server of the machines' cluster answer.
    pub fn api_server_answers(&mut self, now_ms: u64) -> bool {
        let now = self.advance(now_ms);
        self.api_server_back(now).is_none()
    }

    /// Everything that happened up to the last call, in order.
    pub fn effects(&self) -> &[Effect] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Stops remembering effects, for simulations without end.
    pub fn forget_effects(&mut self) {
        self.log = None;
    }

    /// Remembers effects from now on, where they were forgotten.
    pub fn remember_effects(&mut self) {
        self.log.get_or_insert_default();
    }

    /// When something happens by itself next: a task ends, an outage begins or is over, an operator intervenes, a
    /// node joins or is given up.
    pub fn next_event_after(&mut self, now_ms: u64) -> Option<u64> {
        let now = self.advance(now_ms);
        let edges = self.config.outages.iter().flat_map(|o| [o.from.0, o.until.0]);
        let edges = edges
            .map(|at| self.world.head.start + at)
            .filter(|_| !self.world.head.calm)
            .chain(self.node_turns())
            .filter(|at| *at > now);
        edges.chain(self.world.next_due()).min()
    }

    pub(crate) fn note_task(&mut self, at: u64, task: &Task, what: Happened) {
        let Some(log) = &mut self.log else { return };
        log.push(Effect {
            at,
            operation: task.kind.operation().to_owned(),
            what,
            owner: task.stamp.owner.clone(),
            tenant: task.stamp.tenant.clone(),
            key: task.stamp.key.clone(),
            intent: task.name.clone(),
            vm: vm::id(task.vm),
            task: Some(task.id()),
        });
    }

    /// What was done to a VM at once, without a task.
    pub(crate) fn note_at_once(&mut self, at: u64, operation: &str, what: Happened, number: u64) {
        let (Some(log), Some(vm)) = (&mut self.log, self.world.vms.get(&number)) else {
            return;
        };
        log.push(Effect {
            at,
            operation: operation.to_owned(),
            what,
            owner: vm.stamp.owner.clone(),
            tenant: vm.stamp.tenant.clone(),
            key: vm.stamp.key.clone(),
            intent: vm.name.clone(),
            vm: vm.id(),
            task: None,
        });
    }

    pub(crate) fn note_intervention(&mut self, at: u64, number: u64, does: Intervention) {
        let (Some(log), Some(vm)) = (&mut self.log, self.world.vms.get(&number)) else {
            return;
        };
        let operation = match does {
            Intervention::Vanish => "vm.destroy",
            Intervention::PowerOn => "vm.power-on",
            Intervention::PowerOff | Intervention::Suspend => "vm.power-off",
            Intervention::Hang | Intervention::Withdraw => "router.resource",
            _ => "machine.node",
        };
        log.push(Effect {
            at,
            operation: operation.to_owned(),
            what: Happened::Intervened(does),
            owner: vm.stamp.owner.clone(),
            tenant: vm.stamp.tenant.clone(),
            key: None,
            intent: vm.name.clone(),
            vm: vm.id(),
            task: None,
        });
    }
}
