//! The driver of vSphere: virtual machines (`vm@1`) and their tasks (`task@1`) on a vCenter, over SOAP.
//!
//! ```text
//! operation → lib.rs → reads.rs, nics.rs, changes.rs, clone.rs, tasks.rs   one function an operation
//!                        → vm.rs, marks.rs                                 VMs and whose they are
//!                            → inventory.rs, properties.rs, services.rs    what there is, read strictly
//!                                → soap.rs, fault.rs                       calls, and refusals as failures
//! lost clone → resolve.rs
//! ```
//!
//! A VM carries in its options (`extraConfig`) for which object and tenant it was cloned, and by which create:
//! `polity.owner`, `polity.tenant`, `polity.key`. A guest cannot write them. What carries no mark, or that of another,
//! is never changed.
//!
//! Only a server that says so makes a thing absent: a property that cannot be read, a configuration that is not there
//! for now, and a session that has ended are failures.

mod base64;
mod changes;
mod clone;
mod config;
mod devices;
mod fault;
mod inventory;
mod manifest;
mod marks;
mod moid;
mod networks;
mod nics;
mod power;
mod properties;
mod reads;
mod recent;
mod resolve;
mod services;
mod soap;
mod spec;
mod tasks;
mod template;
mod time;
mod vm;

pub use config::Config;

use polity_driver_sdk::prelude::*;

/// The driver of vSphere.
pub struct VSphere;

impl Driver for VSphere {
    fn manifest() -> Manifest {
        manifest::manifest()
    }

    async fn perform(cx: &Context) -> Result<Value, Failure> {
        match cx.operation() {
            "vm.clone" => clone::clone(cx).await,
            "vm.find" => reads::find(cx).await,
            "vm.get" => reads::get(cx).await,
            "vm.metadata" => reads::metadata(cx).await,
            "vm.nics" => nics::nics(cx).await,
            "vm.power" => reads::power(cx).await,
            "vm.reconfigure" => changes::reconfigure(cx).await,
            "vm.power-on" => changes::power_on(cx).await,
            "vm.power-off" => changes::power_off(cx).await,
            "vm.destroy" => changes::destroy(cx).await,
            "task.get" => tasks::get(cx).await,
            other => Err(unknown_operation(other)),
        }
    }

    async fn resolve(cx: &Context, entry: &Entry) -> Finding {
        resolve::resolve(cx, entry).await
    }
}

polity_driver_sdk::driver!(VSphere);
