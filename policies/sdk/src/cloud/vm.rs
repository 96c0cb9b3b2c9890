//! Virtual machines and their tasks: the operations of a vSphere-style cloud.
//!
//! Whatever takes long is submitted and answered with a task, which is asked for later.

use serde::{Deserialize, Serialize};

use crate::cloud::{self, CloudAsk, CloudDo};
use crate::contract::{self, Failure, Question};
use crate::request::{self, Act, Ask};

/// Asks how a task is; `not-found` once the cloud has forgotten it.
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

/// Asks for the guest metadata that a VM was given.
pub fn metadata(id: &str) -> Read<MetadataAnswer> {
    Read(cloud::ask("vm.metadata", &ById { id }))
}

/// Asks for a VM's network interfaces, in the order of its hardware.
pub fn nics(id: &str) -> Read<NicsAnswer> {
    Read(cloud::ask("vm.nics", &ById { id }))
}

/// Asks whether a VM runs.
pub fn power(id: &str) -> Read<PowerAnswer> {
    Read(cloud::ask("vm.power", &ById { id }))
}

/// Makes a VM from a template, powered off. The only operation that creates; its intent is the VM's name.
pub fn clone_vm(vm: &VmSpec<'_>) -> Submit {
    Submit(cloud::create("vm.clone", vm.name, vm))
}

/// Gives a VM other guest metadata.
pub fn reconfigure(id: &str, metadata: &str) -> Submit {
    Submit(cloud::change("vm.reconfigure", &Reconfigure { id, metadata }))
}

/// Starts a VM.
pub fn power_on(id: &str) -> Submit {
    Submit(cloud::change("vm.power-on", &ById { id }))
}

/// Stops a VM at once.
pub fn power_off(id: &str) -> Submit {
    Submit(cloud::change("vm.power-off", &ById { id }))
}

/// Destroys a VM that is off.
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

/// Work that the cloud does in its own time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Task {
    /// The task's id.
    pub id: String,
    /// How it is.
    pub state: TaskState,
    /// `clone`, `reconfigure`, `power-on` and so on.
    #[serde(default)]
    pub kind: String,
    /// The VM it works on, or has made.
    #[serde(default)]
    pub vm: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<TaskError>,
}

/// How a task is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// Not started.
    Queued,
    /// Under way.
    Running,
    /// Done.
    Success,
    /// Failed.
    Error,
    /// A state that this SDK does not know.
    #[serde(untagged)]
    Other(String),
}

/// Why a task failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TaskError {
    /// The cloud's name for it: `InvalidPowerState`.
    pub fault: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// For `InvalidPowerState`: the power state that the VM was in,
    #[serde(default)]
    pub existing: Option<Power>,
    /// and the one that was asked for.
    #[serde(default)]
    pub requested: Option<Power>,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    /// The cloud's id of it.
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The UUID given at its creation.
    #[serde(default)]
    pub instance_uuid: Option<String>,
    /// The UUID its guest sees.
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
    /// Whether it is plugged in.
    #[serde(default)]
    pub connected: bool,
    /// The addresses that the guest reports.
    #[serde(default)]
    pub ips: Vec<String>,
}

/// Whether a VM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    /// It runs.
    #[serde(alias = "poweredOn")]
    On,
    /// It does not.
    #[serde(alias = "poweredOff")]
    Off,
    /// It is kept in memory.
    Suspended,
}

/// What a VM is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VmSpec<'a> {
    /// The VM's name: the intent of the clone.
    pub name: &'a str,
    /// What the VM is recognised by.
    pub instance_uuid: &'a str,
    /// What to clone.
    pub template: &'a str,
    /// The place in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<&'a str>,
    /// Where in the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<&'a str>,
    /// Where its disk lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datastore: Option<&'a str>,
    /// Whose share of the hardware it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<&'a str>,
    /// Processors.
    pub cpus: u32,
    /// Cores on one socket.
    pub cores_per_socket: u32,
    /// Memory.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// The disk's size; none keeps the template's.
    #[serde(rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    pub disk_gib: Option<u64>,
    /// The networks of its interfaces, in order.
    pub networks: Vec<&'a str>,
}

/// What a submitted operation answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Submitted {
    /// The task to ask for.
    pub task: String,
}

/// What a clone in doubt turned out to have made: its task, or the VM once the task is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cloned {
    /// The clone's task.
    Task(String),
    /// The VM itself.
    Vm(String),
}

impl Cloned {
    /// Reads what a clone in doubt is answered with.
    pub fn read(json: &str) -> Result<Cloned, Failure> {
        request::read(json)
    }
}

/// A submitted operation.
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
    /// Takes it out.
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
