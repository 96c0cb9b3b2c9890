//! The driver of vSphere: virtual machines (`vm@1`) and their tasks (`task@1`) on a vCenter, over SOAP.
//!
//! ```text
//! operation → lib.rs → reads.rs, nics.rs, changes.rs, clone.rs, tasks.rs   one function for each operation
//!                        → vm.rs, marks.rs                                 VMs and their owners
//!                            → inventory.rs, properties.rs, services.rs    the inventory, read strictly
//!                                → soap.rs, fault.rs                       calls, and refusals as failures
//! lost clone → resolve.rs
//! ```
//!
//! The options of a VM (`extraConfig`) name the owner and the tenant for which it was cloned, and the key of the create:
//! `polity.owner`, `polity.tenant`, `polity.key`. A guest cannot write them. The driver never changes a VM without a mark,
//! or with the mark of another owner.
//!
//! The driver answers `not-found` only if the server says so. A property that cannot be read, a configuration that is
//! missing for now, and a session that has ended are other failures.

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
