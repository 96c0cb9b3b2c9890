//! The manifest.

use std::time::Duration;

use polity_driver_sdk::prelude::*;

use crate::Config;

/// How long nova may go on with a boot after the host has given up. This is the usual time limit of the servers in front of
/// nova.
pub(crate) const LINGERS: Duration = Duration::from_secs(75);
/// The port of the management API of a router's VM.
const MANAGEMENT_PORT: u16 = 5_000;

/// The operations of `router@1`. The driver has all of them.
const ROUTER: [&str; 13] = [
    "image.get",
    "port.get",
    "router.resource",
    "router.get",
    "router.alive",
    "router.interfaces",
    "router.stats",
    "router.boot",
    "router.delete",
    "router.delete-ports",
    "port.attach",
    "port.detach",
    "config.push",
];

/// The manifest of this driver.
pub(crate) fn manifest() -> Manifest {
    let of_keystone = |service: &str| Endpoint {
        service: service.to_owned(),
        ..Endpoint::default()
    };
    let appliance = Endpoint {
        dynamic: Some(MANAGEMENT_PORT),
        ..Endpoint::default()
    };
    Manifest::new("openstack", env!("CARGO_PKG_VERSION"), Login::Keystone)
        .config::<Config>()
        .implements(Implements::new("router@1", &ROUTER).lingers("router.boot", LINGERS))
        .implements(Implements::new("task@1", &["task.get"]))
        .endpoint("compute", of_keystone("compute"))
        .endpoint("network", of_keystone("network"))
        .endpoint("image", of_keystone("image"))
        .endpoint("appliance", appliance)
}
