//! Work that takes longer than a call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::hypervisor::vm::{self, Power, Stamp, Vm};

/// What a task does to its VM, or tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum TaskKind {
    Clone,
    Reconfigure,
    PowerOn,
    PowerOff,
    Destroy,
    Install,
    Init,
    Join,
    Remove,
    Push,
}

impl TaskKind {
    /// The operation that starts it.
    pub fn operation(self) -> &'static str {
        match self {
            TaskKind::Clone => "vm.clone",
            TaskKind::Reconfigure => "vm.reconfigure",
            TaskKind::PowerOn => "vm.power-on",
            TaskKind::PowerOff => "vm.power-off",
            TaskKind::Destroy => "vm.destroy",
            TaskKind::Install => "agent.install",
            TaskKind::Init => "kubeadm.init",
            TaskKind::Join => "kubeadm.join",
            TaskKind::Remove => "pool.remove-machine",
            TaskKind::Push => "config.push",
        }
    }

    pub(crate) fn of_operation(operation: &str) -> Option<Self> {
        use TaskKind::{Clone, Destroy, Init, Install, Join, PowerOff, PowerOn, Push, Reconfigure, Remove};
        [
            Clone,
            Reconfigure,
            PowerOn,
            PowerOff,
            Destroy,
            Install,
            Init,
            Join,
            Remove,
            Push,
        ]
        .into_iter()
        .find(|kind| kind.operation() == operation)
    }
}

/// A task, from its submission until its record expires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) kind: TaskKind,
    pub(crate) vm: u64,
    /// The VM's name, also when there will be no such VM.
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    pub(crate) submitted: u64,
    pub(crate) starts: u64,
    pub(crate) ends: u64,
    /// Of a reconfigure; of work on a machine of a pool what it was told, as JSON and without what is secret; of a push,
    /// the configuration.
    pub(crate) metadata: Option<String>,
    /// What it will end in, decided by a fault or at submission.
    pub(crate) doomed: Option<TaskError>,
    /// None until it has ended.
    pub(crate) ended: Option<Result<(), TaskError>>,
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskError {
    /// `DuplicateName` and so on.
    pub(crate) fault: String,
    pub(crate) message: String,
    /// `InvalidPowerState` only: the power that the VM has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) existing: Option<Power>,
    /// `InvalidPowerState` only: the power that it would have to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requested: Option<Power>,
}

impl TaskError {
    pub(crate) fn new(fault: &str, message: String) -> Self {
        TaskError {
            fault: fault.to_owned(),
            message,
            existing: None,
            requested: None,
        }
    }

    fn power(existing: Power, requested: Power) -> Self {
        TaskError {
            existing: Some(existing),
            requested: Some(requested),
            ..Self::new(
                "InvalidPowerState",
                "the VM's power state does not allow it".to_owned(),
            )
        }
    }
}

impl Task {
    pub(crate) fn id(&self) -> String {
        format!("task-{}", self.number)
    }

    /// What `task.get` answers.
    pub(crate) fn describe(&self, now: u64) -> Value {
        let state = match &self.ended {
            None if now < self.starts => "queued",
            None => "running",
            Some(Ok(())) => "success",
            Some(Err(_)) => "error",
        };
        let mut task = json!({"id": self.id(), "state": state, "kind": self.kind});
        if self.kind != TaskKind::Clone || matches!(self.ended, Some(Ok(()))) {
            task["vm"] = Value::from(vm::id(self.vm));
        }
        if let Some(Err(error)) = &self.ended {
            task["error"] = json!(error);
        }
        task
    }

    /// May it do its work on the VM as it is now?
    pub(crate) fn permitted(&self, vm: &Vm) -> Result<(), TaskError> {
        let power = vm.current().map(|v| v.power);
        match (self.kind, power) {
            (TaskKind::Clone | TaskKind::Reconfigure, _) => Ok(()),
            (TaskKind::PowerOn, Some(Power::On)) => Err(TaskError::power(Power::On, Power::On)),
            (TaskKind::PowerOff, Some(Power::Off)) => Err(TaskError::power(Power::Off, Power::Off)),
            (TaskKind::Destroy, Some(Power::On)) => Err(TaskError::power(Power::On, Power::Off)),
            _ => Ok(()),
        }
    }
}

/// 7 of `task-7`, spelled so and not otherwise.
pub(crate) fn number(id: &str) -> Option<u64> {
    vm::canonical(id, "task-")
}
