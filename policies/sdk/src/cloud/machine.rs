//! Machines of a cluster: the operations of a driver that makes whole nodes, in the manner of Gardener's
//! machine-controller-manager. Its errors are canonical codes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cloud::{self, CloudAsk, CloudDo};
use crate::cluster::Sealed;
use crate::contract::{Code, Failure};

/// Makes a machine: the only operation that creates. Its intent is the machine's name.
pub const CREATE: &str = "machine.create";
/// All operations of a driver.
pub const OPERATIONS: [&str; 3] = ["machine.status", CREATE, "machine.delete"];

/// A machine that the driver knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    /// The cloud's id of it: what its node says in `spec.providerID`.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The name with which it joins; absent while the driver does not know.
    #[serde(default)]
    pub node_name: Option<String>,
    /// What the driver wants to be remembered.
    #[serde(default)]
    pub last_known_state: Option<String>,
    /// False while it is made and not set up.
    #[serde(default)]
    pub initialized: Option<bool>,
}

/// How a machine is asked for: by its name, and by the cloud's id once that is known.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Named<'a> {
    /// The machine's name.
    pub name: &'a str,
    /// The cloud's id.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<&'a str>,
}

/// What a machine is made of.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Creation<'a> {
    /// Its name: the intent.
    pub name: &'a str,
    /// What its class says to the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_spec: Option<&'a Map<String, Value>>,
    /// What it boots with; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Sealed>,
    /// With what it joins; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<Sealed>,
}

/// Asks for a machine. The answer is read by [`read`]: a policy may want to tell an answer that cannot be read from
/// a failure.
pub fn status(machine: Named<'_>) -> CloudAsk<Value> {
    cloud::ask("machine.status", &machine)
}

/// Makes a machine.
pub fn create(machine: &Creation<'_>) -> CloudDo<Vm> {
    cloud::create(CREATE, machine.name, machine)
}

/// Deletes a machine. The answer is an object, and empty.
pub fn delete(machine: Named<'_>) -> CloudDo<Map<String, Value>> {
    cloud::change("machine.delete", &machine)
}

/// Reads what a driver says of a machine.
pub fn read(answer: Value) -> Result<Vm, Failure> {
    serde_json::from_value(answer).map_err(|error| {
        let message = format!("the driver's answer does not decode: {error}");
        Failure::new(Code::Internal, message)
    })
}

/// Whether the same may work soon: Unknown, DeadlineExceeded, Aborted, Unavailable. NotFound and Unimplemented mean
/// something else in each flow; all other codes need a person.
pub fn is_transient(failure: &Failure) -> bool {
    let transient = [
        Code::Unknown,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::Unavailable,
    ];
    transient.contains(&failure.code)
}
