//! The manifest of the driver, and the configuration of a connection.

use std::time::Duration;

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::{Refusals, StatusClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error;

/// Creates a machine.
pub(crate) const CREATE: &str = "machine.create";
/// Reads a machine.
pub(crate) const STATUS: &str = "machine.status";
/// Removes a machine.
pub(crate) const DELETE: &str = "machine.delete";
/// Removes a machine whose owner is gone.
pub(crate) const DELETE_ORPHAN: &str = "orphan.delete";
/// Switches off the source/destination check of a machine.
pub(crate) const INITIALIZE: &str = "machine.initialize";
/// Lists the machines of a tenant.
pub(crate) const LIST: &str = "machine.list";
/// The ids of EBS volumes.
pub(crate) const VOLUMES: &str = "machine.volumes";

/// The only endpoint.
pub(crate) const EC2: &str = "ec2";

/// The stamp: the version of the marks in [`marks`](crate::marks), with the key as client token.
pub(crate) const STAMP: u32 = 1;

/// How long it may take until a look by the client token sees the instance. EC2 promises no time, and says that it may take
/// minutes ("Eventual consistency in the Amazon EC2 API"). machine-controller-manager waits 5 minutes.
const LINGERS: Duration = Duration::from_secs(300);

/// The configuration of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The region of the machines: `eu-central-1`. If it is given, a login to another region is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// The manifest.
pub(crate) fn manifest() -> Manifest {
    let operations = [CREATE, STATUS, DELETE, DELETE_ORPHAN, INITIALIZE, LIST, VOLUMES];
    let machines = Implements::new("machine@1", &operations).lingers(CREATE, LINGERS);
    let refusals = Refusals::at(error::CODE).codes(StatusClass::ServerError, error::REFUSED);
    let ec2 = Endpoint {
        service: EC2.to_owned(),
        refusals: Some(refusals),
        ..Endpoint::default()
    };
    Manifest::new("aws", env!("CARGO_PKG_VERSION"), Login::AwsSigv4)
        .config::<Config>()
        .endpoint(EC2, ec2)
        .implements(machines)
}

/// Checks that the login, the configuration and the class name the same region. Without this check, a machine in another
/// region would count as gone.
pub(crate) fn check_region(cx: &Context, of_class: &str) -> Result<(), Failure> {
    let config: Config = cx.config()?;
    let login = cx.session()["region"].as_str().unwrap_or_default();
    let named = [
        ("the login is for the region", login),
        (
            "the connection's configuration names the region",
            config.region.as_deref().unwrap_or_default(),
        ),
        ("providerSpec.region is", of_class),
    ];
    let mut named = named.into_iter().filter(|(_, region)| !region.is_empty());
    let Some((first, region)) = named.next() else {
        return Ok(());
    };
    match named.find(|(_, other)| *other != region) {
        None => Ok(()),
        Some((second, other)) => Err(failure(
            Code::InvalidArgument,
            format!("{first} {region:?}, but {second} {other:?}: they must be the same"),
        )),
    }
}
