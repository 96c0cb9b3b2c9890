//! The driver of OpenStack: virtual routers (`router@1`) on nova, neutron and glance.
//!
//! ```text
//! operation → lib.rs → image.rs, port.rs, router.rs, boot.rs, appliance.rs   one function for each operation
//!                        → compute.rs, network.rs                            servers and ports, read strictly
//!                            → api.rs, list.rs                               requests, whole lists
//!                                → error.rs                                  refusals as failures
//! lost boot → resolve.rs
//! ```
//!
//! A router is a server of nova. Its metadata names the owner and the tenant for which it was booted, and the key of the
//! create: `polity-owner`, `polity-tenant`, `polity-key`. Tags assign a port of neutron to a router; operators set these
//! tags: see [`Config::tag_prefix`]. The driver never changes a resource without a mark, or with the mark of another owner.
//!
//! Images, flavors, networks and servers are named by their ids in OpenStack. Only routers are named by name.
//!
//! The host finds the roots of the services in the catalogue of Keystone. The driver speaks version 2.1 of nova's API, 2.0 of
//! neutron's and 2 of glance's.

mod api;
mod appliance;
mod boot;
mod compute;
mod config;
mod error;
mod id;
mod image;
mod list;
mod manifest;
mod network;
mod port;
mod resolve;
mod router;
mod task;
mod time;

pub use config::{Config, Routers};

use polity_driver_sdk::prelude::*;

/// The driver of OpenStack.
pub struct OpenStack;

impl Driver for OpenStack {
    fn manifest() -> Manifest {
        manifest::manifest()
    }

    async fn perform(cx: &Context) -> Result<Value, Failure> {
        match cx.operation() {
            "image.get" => image::get(cx).await,
            "port.get" => port::get(cx).await,
            "port.attach" => port::attach(cx).await,
            "port.detach" => port::detach(cx).await,
            "router.resource" => router::resource(cx).await,
            "router.get" => router::get(cx).await,
            "router.delete" => router::delete(cx).await,
            "router.delete-ports" => port::give_back(cx).await,
            "router.boot" => boot::boot(cx).await,
            "router.alive" => appliance::alive(cx).await,
            "router.interfaces" => appliance::interfaces(cx).await,
            "router.stats" => appliance::stats(cx).await,
            "config.push" => appliance::push(cx).await,
            "task.get" => task::get(cx),
            other => Err(unknown_operation(other)),
        }
    }

    async fn resolve(cx: &Context, entry: &Entry) -> Finding {
        resolve::resolve(cx, entry).await
    }
}

polity_driver_sdk::driver!(OpenStack);
