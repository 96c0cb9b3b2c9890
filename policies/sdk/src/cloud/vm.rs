//! Virtual machines and their tasks: the operations of a cloud in the manner of vSphere.
//!
//! Long work is answered with a task, which the policy asks for later.

use serde::{Deserialize, Serialize};

use crate::cloud::{self, CloudAsk, CloudDo};
use crate::cluster::Sealed;
use crate::contract::{self, Failure, Question};
use crate::request::{self, Act, Ask};

/// Clones a VM. It is the only operation that creates something. Its intent is the VM's name.
pub const CLONE: &str = "vm.clone";
/// All operations on VMs, and the look at their tasks.
pub const OPERATIONS: [&str; 11] = [
    "task.get",
    "vm.find",
    "vm.get",
    "vm.metadata",
    "vm.nics",
    "vm.power",
    CLONE,
    "vm.reconfigure",
    "vm.power-on",
    "vm.power-off",
    "vm.destroy",
];

/// Asks for the state of a task; `not-found` after the cloud has dropped its record.
pub fn task(id: &str) -> CloudAsk<Task> {
    cloud::ask("task.get", &ById { id })
}

/// Asks for the VM with this instance UUID, or `not-found`.
pub fn by_instance_uuid(uuid: &str) -> CloudAsk<Vm> {
    cloud::ask("vm.find", &ByInstanceUuid { instance_uuid: uuid })
}

/// Asks for a VM by its id, or `not-found`.
pub fn get(id: &str) -> CloudAsk<Vm> {
    cloud::ask("vm.get", &ById { id })
}

/// Asks for the guest metadata of a VM.
pub fn metadata(id: &str) -> Read<MetadataAnswer> {
    Read(cloud::ask("vm.metadata", &ById { id }))
}

/// Asks for the network interfaces of a VM, in the order of its hardware.
pub fn nics(id: &str) -> Read<NicsAnswer> {
    Read(cloud::ask("vm.nics", &ById { id }))
}

/// Asks for the power state of a VM.
pub fn power(id: &str) -> Read<PowerAnswer> {
    Read(cloud::ask("vm.power", &ById { id }))
}

/// Clones a VM from a template. The VM is powered off.
pub fn clone_vm(vm: &VmSpec<'_>) -> Submit {
    Submit(cloud::create(CLONE, vm.name, vm))
}

/// Sets the guest metadata of a VM.
pub fn reconfigure(id: &str, metadata: &str) -> Submit {
    Submit(cloud::change("vm.reconfigure", &Reconfigure { id, metadata }))
}

/// Turns a VM on.
pub fn power_on(id: &str) -> Submit {
    Submit(cloud::change("vm.power-on", &ById { id }))
}

/// Turns a VM off at once.
pub fn power_off(id: &str) -> Submit {
    Submit(cloud::change("vm.power-off", &ById { id }))
}

/// Removes a VM that is off.
pub fn destroy(id: &str) -> Submit {
    Submit(cloud::change("vm.destroy", &ById { id }))
}

#[derive(Serialize)]
struct ById<'a> {
    id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ByInstanceUuid<'a> {
    instance_uuid: &'a str,
}

#[derive(Serialize)]
struct Reconfigure<'a> {
    id: &'a str,
    metadata: &'a str,
}

/// Work of the cloud that takes longer than a call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Task {
    /// The task's id.
    pub id: String,
    /// The state of the task.
    pub state: TaskState,
    /// `clone`, `reconfigure`, `power-on` and so on.
    #[serde(default)]
    pub kind: String,
    /// The VM that the task works on, or has created.
    #[serde(default)]
    pub vm: Option<String>,
    /// What the VM asks a person. The task runs until that is answered.
    #[serde(default)]
    pub question: Option<String>,
    /// The reason why it failed.
    #[serde(default)]
    pub error: Option<TaskError>,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// The task has not started.
    Queued,
    /// The task is running.
    Running,
    /// The task has succeeded.
    Success,
    /// The task has failed.
    Error,
    /// A state that this SDK does not know.
    #[serde(untagged)]
    Other(String),
}

/// The reason why a task failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TaskError {
    /// The cloud's name of the error: `InvalidPowerState`.
    pub fault: String,
    /// The message for people.
    #[serde(default)]
    pub message: String,
    /// For `InvalidPowerState`: the power state of the VM.
    #[serde(default)]
    pub existing: Option<Power>,
    /// For `InvalidPowerState`: the power state that was requested.
    #[serde(default)]
    pub requested: Option<Power>,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    /// The cloud's id of the VM.
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The UUID that was given when it was created.
    #[serde(default)]
    pub instance_uuid: Option<String>,
    /// The UUID that its guest sees.
    #[serde(default)]
    pub bios_uuid: Option<String>,
}

/// One network interface of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Nic {
    /// The network's name.
    pub network: String,
    /// Its MAC address.
    pub mac: String,
    /// Whether it is connected.
    #[serde(default)]
    pub connected: bool,
    /// The addresses that the guest reports.
    #[serde(default)]
    pub ips: Vec<String>,
}

/// The power state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    /// The VM runs.
    #[serde(alias = "poweredOn")]
    On,
    /// The VM is off.
    #[serde(alias = "poweredOff")]
    Off,
    /// The VM is suspended to memory.
    Suspended,
}

/// The parts of a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VmSpec<'a> {
    /// The VM's name, which is the intent of the clone.
    pub name: &'a str,
    /// The UUID by which the VM is recognised.
    pub instance_uuid: &'a str,
    /// The template to clone.
    pub template: &'a str,
    /// The datacenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<&'a str>,
    /// The folder in the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<&'a str>,
    /// The datastore of its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datastore: Option<&'a str>,
    /// The resource pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<&'a str>,
    /// The number of processors.
    pub cpus: u32,
    /// The number of cores of a socket.
    pub cores_per_socket: u32,
    /// The memory in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// The size of the disk in GiB; `None` keeps the size of the template's disk.
    #[serde(rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    pub disk_gib: Option<u64>,
    /// The networks of its interfaces, in order.
    pub networks: Vec<&'a str>,
    /// The data with which the guest sets itself up at its first start; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Sealed>,
}

/// The answer to an operation that starts a task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Submitted {
    /// The id of the task.
    pub task: String,
}

/// The result of a clone in doubt: its task, or the VM if the record of the task is gone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cloned {
    /// The clone's task.
    Task(String),
    /// The VM itself.
    Vm(String),
}

impl Cloned {
    /// Reads the result of a clone in doubt.
    pub fn read(json: &str) -> Result<Cloned, Failure> {
        request::read(json)
    }
}

/// An operation that starts a task.
#[derive(Clone, Debug)]
pub struct Submit(CloudDo<Submitted>);

impl Submit {
    /// An operation that answers `{"task": ..}`.
    pub(crate) fn of(operation: CloudDo<Submitted>) -> Self {
        Submit(operation)
    }
}

impl Act for Submit {
    /// The task's id.
    type Answer = String;

    fn act(self, home: Option<&str>) -> contract::Act {
        self.0.act(home)
    }

    fn read(json: &str) -> Result<String, Failure> {
        request::read::<Submitted>(json).map(|submitted| submitted.task)
    }
}

/// A question whose answer wraps a single value.
#[derive(Clone, Debug)]
pub struct Read<A>(CloudAsk<A>);

impl<A> Read<A> {
    /// A question whose answer is unwrapped.
    pub(crate) fn of(question: CloudAsk<A>) -> Self {
        Read(question)
    }
}

/// An answer that wraps a single value.
pub trait Wrapped: serde::de::DeserializeOwned {
    /// The value.
    type Value;
    /// Returns the value.
    fn unwrapped(self) -> Self::Value;
}

impl<A: Wrapped> Ask for Read<A> {
    type Answer = A::Value;

    fn question(self, home: Option<&str>) -> Question {
        self.0.question(home)
    }

    fn read(json: &str) -> Result<A::Value, Failure> {
        request::read::<A>(json).map(A::unwrapped)
    }
}

macro_rules! wrapped {
    ($($(#[$doc:meta])* $answer:ident { $field:ident: $value:ty })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        pub struct $answer {
            $field: $value,
        }

        impl Wrapped for $answer {
            type Value = $value;
            fn unwrapped(self) -> $value {
                self.$field
            }
        }
    )+};
}

wrapped! {
    /// What `vm.metadata` answers.
    MetadataAnswer { metadata: Option<String> }
    /// What `vm.nics` answers.
    NicsAnswer { nics: Vec<Nic> }
    /// What `vm.power` answers.
    PowerAnswer { state: Power }
}
