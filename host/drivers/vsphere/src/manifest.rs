//! The manifest.

use std::time::Duration;

use polity_driver_sdk::prelude::*;

use crate::Config;
use crate::soap::ENDPOINT;

/// How long it may take until the task of a clone is in the list of recent tasks. vCenter creates the task before it answers
/// the call, so this is the longest time for which a vCenter under load delays a call.
const LINGERS: Duration = Duration::from_secs(60);

/// The operations of `vm@1`. The driver has all of them.
const VM: [&str; 10] = [
    "vm.clone",
    "vm.find",
    "vm.get",
    "vm.metadata",
    "vm.nics",
    "vm.power",
    "vm.reconfigure",
    "vm.power-on",
    "vm.power-off",
    "vm.destroy",
];

/// The manifest of this driver.
pub(crate) fn manifest() -> Manifest {
    let vm = Implements::new("vm@1", &VM)
        .lingers("vm.clone", LINGERS)
        .places("vm.clone", &["datacenter", "folder"]);
    let sdk = Endpoint {
        soap: true,
        ..Endpoint::default()
    };
    Manifest::new("vsphere", env!("CARGO_PKG_VERSION"), Login::VsphereSession)
        .config::<Config>()
        .implements(vm)
        .implements(Implements::new("task@1", &["task.get"]))
        .endpoint(ENDPOINT, sdk)
}
