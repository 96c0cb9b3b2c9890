//! Tasks that change a VM, one at a time.

use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};

use super::effects::Happened;
use super::vm::id;
use super::{Hypervisor, no_vm};
use crate::event::{Call, Kernel};
use crate::kernel::between::Between;
use crate::kernel::call::TaskError;
use crate::kernel::tasks::{self, Task, Work};

impl Hypervisor {
    /// Starts the task with which a call on this VM is answered, unless another task is changing the VM.
    pub(crate) fn change(
        &mut self,
        kernel: &mut Kernel,
        at: u64,
        call: &Call,
        number: u64,
        (takes, told): (Between, Value),
    ) -> Answer {
        let vm = self.vms.get(&number).ok_or_else(|| no_vm(&id(number)))?;
        if let Some(busy) = vm.busy {
            return Err(in_progress(busy, number));
        }
        let work = Work {
            about: number,
            name: vm.name.clone(),
            takes,
            told,
        };
        let task = self.submit(kernel, at, call, work);
        if let Some(vm) = self.vms.get_mut(&number) {
            vm.busy = Some(task);
        }
        Ok(answer(task))
    }

    /// The answer for a call that wants the same work on this VM as a running task. Refused if another task
    /// is changing the VM.
    pub(crate) fn join(&self, kernel: &Kernel, call: &Call, number: u64) -> Result<Option<Value>, Failure> {
        let Some(busy) = self.vms.get(&number).and_then(|vm| vm.busy) else {
            return Ok(None);
        };
        match kernel.task(busy).map(|task| task.operation == call.operation) {
            Some(true) => Ok(Some(answer(busy))),
            _ => Err(in_progress(busy, number)),
        }
    }

    /// Starts a task on a VM that exists, will exist, or is refused.
    pub(crate) fn submit(&mut self, kernel: &mut Kernel, at: u64, call: &Call, work: Work) -> u64 {
        let task = kernel.submit(at, call, work);
        self.note_task(at, task, Happened::Submitted);
        task.number
    }

    /// A task ends, so other tasks may change its VM again. Returns whether it can still do its work.
    pub(crate) fn release(&mut self, task: &Task) -> Result<(), TaskError> {
        let vm = self.vms.get_mut(&task.about);
        let Some(vm) = vm.filter(|vm| vm.creating() || vm.exists() || task.doomed.is_some()) else {
            let gone = TaskError::new("ManagedObjectNotFound", format!("VM {:?} is gone", task.name));
            return Err(task.doomed.clone().unwrap_or(gone));
        };
        vm.busy = None;
        match &task.doomed {
            None => Ok(()),
            Some(error) => {
                // A failed clone leaves no VM. Any other failed task leaves the VM as it was.
                if vm.creating() {
                    self.forget(task.about);
                }
                Err(error.clone())
            }
        }
    }
}

/// The answer to a call that has started a task.
pub(crate) fn answer(task: u64) -> Value {
    json!({"task": tasks::id(task)})
}

fn in_progress(task: u64, vm: u64) -> Failure {
    let message = format!("TaskInProgress: {} is changing {}", tasks::id(task), id(vm));
    Failure::new(Code::FailedPrecondition, message)
}
