//! The log of everything that happened to VMs, in order.

use super::Hypervisor;
use super::vm;
use crate::config::scenario::Intervention;
use crate::kernel::call::Stamp;
use crate::kernel::tasks::Task;

/// Something that happened in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Unix milliseconds.
    pub at: u64,
    /// The operation, for example `vm.clone`. For an intervention, the operation that would have had the
    /// effect.
    pub operation: String,
    /// What happened.
    pub what: Happened,
    /// The primary's uid.
    pub owner: String,
    /// The tenant that the primary belonged to.
    pub tenant: String,
    /// For creates: the key of the pending entry.
    pub key: Option<String>,
    /// The VM's name. For a create this is its intent.
    pub intent: String,
    /// The VM. A failed clone has left none.
    pub vm: String,
    /// The task; `None` for an intervention and for what is done at once.
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

impl Hypervisor {
    /// Everything that happened up to the last call, in order.
    pub(crate) fn effects(&self) -> &[Effect] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Whether effects are logged from now on.
    pub(crate) fn remember_effects(&mut self, remember: bool) {
        if remember {
            self.log.get_or_insert_default();
        } else {
            self.log = None;
        }
    }

    /// Logs how far a task got.
    pub(crate) fn note_task(&mut self, at: u64, task: &Task, what: Happened) {
        let Some(log) = &mut self.log else { return };
        let id = Some(task.id());
        let about = (task.about, task.name.as_str(), &task.stamp);
        log.push(Effect::new(at, &task.operation, what, about, id));
    }

    /// Logs a change of a VM without a task.
    pub(crate) fn note(&mut self, at: u64, operation: &str, what: Happened, number: u64) {
        let (Some(log), Some(vm)) = (&mut self.log, self.vms.get(&number)) else {
            return;
        };
        let about = (number, vm.name.as_str(), &vm.stamp);
        log.push(Effect::new(at, operation, what, about, None));
    }

    /// Logs a change of a VM by somebody else.
    pub(crate) fn note_intervention(&mut self, at: u64, number: u64, does: Intervention) {
        let (Some(log), Some(vm)) = (&mut self.log, self.vms.get(&number)) else {
            return;
        };
        let about = (number, vm.name.as_str(), &vm.stamp);
        let effect = Effect::new(at, does.operation(), Happened::Intervened(does), about, None);
        // No pending entry was waiting for it.
        log.push(Effect { key: None, ..effect });
    }
}

impl Effect {
    fn new(
        at: u64,
        operation: &str,
        what: Happened,
        (number, name, stamp): (u64, &str, &Stamp),
        task: Option<String>,
    ) -> Self {
        Effect {
            at,
            operation: operation.to_owned(),
            what,
            owner: stamp.owner.clone(),
            tenant: stamp.tenant.clone(),
            key: stamp.key.clone(),
            intent: name.to_owned(),
            vm: vm::id(number),
            task,
        }
    }
}
