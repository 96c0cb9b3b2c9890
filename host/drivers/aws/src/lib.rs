//! A driver for EC2: machines in the manner of Gardener's machine-controller-manager.
//!
//! ```text
//! operation ──▶ spec.rs (the class) ──▶ launch.rs, look.rs (requests to EC2)
//!                                                      │
//! answer    ◀── instance.rs (the answer of EC2)  ◀── query.rs ◀── error.rs (errors as failures)
//! ```
//!
//! The driver uses the Query API of EC2, version 2016-11-15: a request is a form, and a response is XML. It never waits,
//! and it never repeats a create: if an answer is lost, it looks for the client token (`resolve`).
//!
//! **Trust.** Every instance carries the marks of its owner (`marks`). An instance is changed only if its owner
//! was read in the same operation. A filter only makes a list shorter. It is not a check: the driver compares every row
//! of the answer itself.

mod create;
mod delete;
mod error;
mod initialize;
mod instance;
mod interfaces;
mod launch;
mod list;
mod look;
mod manifest;
mod marks;
mod pages;
mod provider_id;
mod query;
mod resolve;
mod spec;
mod status;
mod validate;
mod volumes;

pub use manifest::Config;

use polity_driver_sdk::prelude::*;

/// The driver.
pub struct Aws;

impl Driver for Aws {
    fn manifest() -> Manifest {
        manifest::manifest()
    }

    async fn perform(cx: &Context) -> Result<Value, Failure> {
        match cx.operation() {
            manifest::CREATE => create::perform(cx).await,
            manifest::STATUS => status::perform(cx).await,
            manifest::DELETE => delete::perform(cx).await,
            manifest::DELETE_ORPHAN => delete::orphan(cx).await,
            manifest::INITIALIZE => initialize::perform(cx).await,
            manifest::LIST => list::perform(cx).await,
            manifest::VOLUMES => volumes::perform(cx),
            other => Err(unknown_operation(other)),
        }
    }

    async fn resolve(cx: &Context, entry: &Entry) -> Finding {
        match cx.operation() {
            manifest::CREATE => resolve::resolve(cx, entry).await,
            other => unknown_operation(other).into(),
        }
    }
}

polity_driver_sdk::driver!(Aws);
