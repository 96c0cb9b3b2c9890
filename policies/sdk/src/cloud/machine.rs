//! Machines of a cluster: the operations of a driver that creates whole nodes, in the manner of Gardener's
//! machine-controller-manager. Its errors are canonical codes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cloud::{self, CloudAsk, CloudDo};
use crate::cluster::Sealed;
use crate::contract::{Code, Failure};

/// Creates a machine. It is the only operation that creates something. Its intent is the machine's name.
pub const CREATE: &str = "machine.create";
/// Reads a machine.
const STATUS: &str = "machine.status";
/// Deletes a machine.
const DELETE: &str = "machine.delete";
/// Does the setup that a machine needs after its creation.
const INITIALIZE: &str = "machine.initialize";
/// Lists the machines of the tenant.
const LIST: &str = "machine.list";
/// Names the volumes that the cloud attaches.
const VOLUMES: &str = "machine.volumes";
/// Deletes a machine whose owner is gone. A binding grants it by its name.
pub const DELETE_ORPHAN: &str = "orphan.delete";
/// All operations of a driver on the machines of their owner.
pub const OPERATIONS: [&str; 6] = [STATUS, CREATE, DELETE, INITIALIZE, LIST, VOLUMES];

/// A machine that the driver knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    /// The cloud's id of the machine, which is the `spec.providerID` of its node.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The name with which it joins; absent as long as the driver does not know it.
    #[serde(default)]
    pub node_name: Option<String>,
    /// A state that the driver wants to be remembered.
    #[serde(default)]
    pub last_known_state: Option<String>,
    /// `false` if the machine is created but not set up yet.
    #[serde(default)]
    pub initialized: Option<bool>,
}

/// A machine that exists or may exist: its names, its class, and the Secret of the class.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Known<'a> {
    /// The machine's name.
    pub name: &'a str,
    /// The cloud's id, once that is known.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<&'a str>,
    /// The class's specification for the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_spec: Option<&'a Map<String, Value>>,
    /// The user data with which it boots; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Sealed>,
}

/// All machines of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Listed {
    /// The machines.
    pub machines: Vec<Row>,
}

/// A machine in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Row {
    /// The machine's name.
    pub name: String,
    /// The cloud's id.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The uid of the object to which the machine belongs.
    pub owner: String,
}

/// The volumes that the cloud attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct VolumeIds {
    /// The cloud's ids of the volumes.
    #[serde(rename = "volumeIDs")]
    pub volume_ids: Vec<String>,
}

/// The parts of a machine.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Creation<'a> {
    /// The name of the machine, which is the intent.
    pub name: &'a str,
    /// The class's specification for the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_spec: Option<&'a Map<String, Value>>,
    /// The user data with which it boots; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Sealed>,
    /// The token with which it joins; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<Sealed>,
}

/// Asks for a machine. [`read`] reads the answer: a policy may want to distinguish an answer that cannot be
/// read from a failure.
pub fn status(machine: &Known<'_>) -> CloudAsk<Value> {
    cloud::ask(STATUS, machine)
}

/// Asks for all machines of the tenant. The answer may lag behind.
pub fn list() -> CloudAsk<Listed> {
    cloud::ask(LIST, &Map::new())
}

/// Asks for the machines of the tenant that belong to the object of this uid. A driver may list others, too.
pub fn list_of(owner: &str) -> CloudAsk<Listed> {
    cloud::ask(LIST, &json!({"owner": owner}))
}

/// Asks for the cloud's ids of the volumes that these specifications of PersistentVolumes name. Volumes that the cloud
/// does not attach are left out.
pub fn volumes(specifications: &[Value]) -> CloudAsk<VolumeIds> {
    cloud::ask(VOLUMES, &json!({"volumes": specifications}))
}

/// Creates a machine.
pub fn create(machine: &Creation<'_>) -> CloudDo<Vm> {
    cloud::create(CREATE, machine.name, machine)
}

/// Deletes a machine. The answer is an empty object.
pub fn delete(machine: &Known<'_>) -> CloudDo<Map<String, Value>> {
    cloud::change(DELETE, machine)
}

/// Deletes a machine of another owner, whom the caller must know to be gone. The answer is an empty object.
pub fn delete_orphan(machine: &Row) -> CloudDo<Map<String, Value>> {
    let arguments = json!({"providerID": machine.provider_id, "owner": machine.owner});
    cloud::change(DELETE_ORPHAN, &arguments)
}

/// Does the setup that a machine needs after its creation. The answer is an empty object.
pub fn initialize(machine: &Known<'_>) -> CloudDo<Map<String, Value>> {
    cloud::change(INITIALIZE, machine)
}

/// Reads a driver's answer about a machine.
pub fn read(answer: Value) -> Result<Vm, Failure> {
    serde_json::from_value(answer).map_err(|error| {
        let message = format!("the driver's answer does not decode: {error}");
        Failure::new(Code::Internal, message)
    })
}

/// Whether the same request may succeed soon: Unknown, DeadlineExceeded, Aborted, Unavailable. NotFound and
/// Unimplemented have another meaning in each flow. All other codes need a person.
pub fn is_transient(failure: &Failure) -> bool {
    let transient = [
        Code::Unknown,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::Unavailable,
    ];
    transient.contains(&failure.code)
}
