//! What a driver of a cloud says of itself. `wit/driver/driver.wit` is the contract with drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The manifest of a driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The name of the driver.
    pub name: String,
    /// The version of the driver.
    pub version: String,
    /// How the host logs in.
    pub login: Login,
    /// The services that it implements.
    pub implements: Vec<Implements>,
    /// The version of the marks with which it creates. It is raised whenever how things are marked, or found,
    /// changes.
    pub stamp: u32,
    /// The stamps that it can find.
    pub stamps: Vec<u32>,
    /// The JSON Schema of the configuration of a connection, without references. A host refuses a keyword that it does not
    /// know.
    pub config_schema: Value,
    /// The endpoints that it sends to, by name.
    pub endpoints: BTreeMap<String, Endpoint>,
}

/// How the host logs in to a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Login {
    /// Not at all.
    None,
    /// A user and a password with each request.
    Basic,
    /// A token with each request.
    Bearer,
    /// OpenStack's Keystone.
    Keystone,
    /// Signatures of AWS, with the chain of STS.
    AwsSigv4,
    /// A session of vCenter.
    VsphereSession,
}

/// A service of the catalogue, as a driver implements it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Implements {
    /// The service with its major version: `vm@1`.
    pub service: String,
    /// The operations of it that it has.
    pub operations: Vec<String>,
    /// For each create: how long the server may go on until the first trace of it, in milliseconds.
    #[serde(default)]
    pub lingers: BTreeMap<String, u64>,
    /// For each create: the dotted paths of the arguments that say where, after the place of the server itself.
    #[serde(default, rename = "where")]
    pub places: BTreeMap<String, Vec<String>>,
}

/// An endpoint that requests name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    /// The service in the catalogue of the login (Keystone's type, AWS's name), where the address is found if the
    /// connection does not give one.
    #[serde(default)]
    pub service: String,
    /// Whether answers are SOAP: a fault of it is a refusal.
    #[serde(default)]
    pub soap: bool,
    /// For an endpoint whose address stands in responses: its fixed port. The cloud's credentials are not sent
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<u16>,
    /// The errors that say that nothing was done, where the status alone does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<Refusals>,
}

/// The errors of an API by which it says that it did nothing, whatever their status is.
///
/// A host takes every status 4xx other than 408 and 429 for a refusal. After another status a change may have happened, unless
/// the body is a complete document in which all codes are among these. A host never looks into a success, nor into a 408, 502
/// or 504: a server in between answers these, and does not know what the API did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusals {
    /// Where a code stands in a body: a dotted path through lists, as in `keep`. In XML it is an element with a text.
    pub code_at: String,
    /// The codes, by the class of the status with which they come.
    pub codes: BTreeMap<StatusClass, BTreeSet<String>>,
}

/// A class of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StatusClass {
    /// Of these only a 429 needs its code.
    #[serde(rename = "4xx")]
    ClientError,
    /// All but 502 and 504.
    #[serde(rename = "5xx")]
    ServerError,
}

impl StatusClass {
    /// The class of a status with which an API itself may say that it did nothing.
    pub fn of(status: u16) -> Option<Self> {
        match status {
            408 | 502 | 504 => None,
            400..=499 => Some(StatusClass::ClientError),
            500..=599 => Some(StatusClass::ServerError),
            _ => None,
        }
    }
}

impl Refusals {
    /// Codes at this path.
    pub fn at(path: &str) -> Self {
        Refusals {
            code_at: path.to_owned(),
            codes: BTreeMap::new(),
        }
    }

    /// With these codes, which come with a status of this class.
    #[must_use]
    pub fn codes<'a>(mut self, class: StatusClass, codes: impl IntoIterator<Item = &'a str>) -> Self {
        let codes = codes.into_iter().map(str::to_owned);
        self.codes.entry(class).or_default().extend(codes);
        self
    }

    /// Whether an error with this status and these codes says that nothing was done. An error without a code does not.
    pub fn refuse(&self, status: u16, codes: &[&str]) -> bool {
        let listed = StatusClass::of(status).and_then(|class| self.codes.get(&class));
        listed.is_some_and(|listed| !codes.is_empty() && codes.iter().all(|code| listed.contains(*code)))
    }
}

impl Manifest {
    /// A driver that implements nothing yet.
    pub fn new(name: &str, version: &str, login: Login) -> Self {
        Manifest {
            name: name.to_owned(),
            version: version.to_owned(),
            login,
            implements: Vec::new(),
            stamp: 1,
            stamps: vec![1],
            config_schema: serde_json::json!({"type": "object"}),
            endpoints: BTreeMap::new(),
        }
    }

    /// With a configuration of this type.
    #[must_use]
    pub fn config<C: JsonSchema>(mut self) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<C>();
        self.config_schema = schema.to_value();
        self
    }

    /// With an endpoint.
    #[must_use]
    pub fn endpoint(mut self, name: &str, endpoint: Endpoint) -> Self {
        self.endpoints.insert(name.to_owned(), endpoint);
        self
    }

    /// With a service.
    #[must_use]
    pub fn implements(mut self, service: Implements) -> Self {
        self.implements.push(service);
        self
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Implements {
    /// These operations of a service.
    pub fn new(service: &str, operations: &[&str]) -> Self {
        Implements {
            service: service.to_owned(),
            operations: operations.iter().map(|name| (*name).to_owned()).collect(),
            lingers: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    /// How long a server may go on with a create until its first trace.
    #[must_use]
    pub fn lingers(mut self, operation: &str, time: Duration) -> Self {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.lingers.insert(operation.to_owned(), time);
        self
    }

    /// The arguments of a create that say where.
    #[must_use]
    pub fn places(mut self, operation: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|path| (*path).to_owned()).collect();
        self.places.insert(operation.to_owned(), arguments);
        self
    }
}
