//! The SDK for authors of drivers.
//!
//! A driver turns an operation of a cloud into HTTP requests, and their responses into the operation's answer. It
//! is a pure function: the host calls it again from the top, with all exchanges so far. With this crate a driver
//! looks like ordinary code that sends requests and awaits the responses.
//!
//! ```
//! use polity_driver_sdk::prelude::*;
//!
//! struct Shelf;
//!
//! impl Driver for Shelf {
//!     fn manifest() -> Manifest {
//!         Manifest::new("shelf", "0.1.0", Login::None).endpoint("api", Endpoint::default())
//!     }
//!
//!     async fn perform(cx: &Context) -> Result<Value, Failure> {
//!         match cx.operation() {
//!             "image.get" => {
//!                 let image = cx.argument("image");
//!                 let seen = cx.send(Request::get("api").path(["images", image]).keep(["status"])).await?;
//!                 match seen.status {
//!                     200 if seen.body["status"] == "active" => Ok(json!({})),
//!                     200 => Err(failure(Code::FailedPrecondition, format!("image {image} is not active"))),
//!                     404 => Err(failure(Code::NotFound, format!("there is no image {image}"))),
//!                     status => Err(failure(Code::Internal, format!("the server answers {status}"))),
//!                 }
//!             }
//!             other => Err(unknown_operation(other)),
//!         }
//!     }
//!
//!     async fn resolve(_: &Context, _: &Entry) -> Finding {
//!         Finding::CannotTell(failure(Code::Unimplemented, "it creates nothing"))
//!     }
//! }
//!
//! polity_driver_sdk::driver!(Shelf);
//! # fn main() {}
//! ```
//!
//! The README of this crate builds a whole driver, step by step. [`mod@test`] plays a server to a driver, and checks the rules of the host.

// The macros of this crate name it from outside and from inside.
extern crate self as polity_driver_sdk;

#[doc(hidden)]
pub mod bindings;
mod context;
pub mod form;
pub mod join;
mod owned;
mod request;
mod step;
#[cfg(not(target_arch = "wasm32"))]
pub mod test;
pub mod tree;
pub mod xml;

pub use bindings::polity::driver::types::{
    Call, Code, Effect, Entry, Exchange, Failure, Finding, HttpRequest, HttpResponse, Outcome, Part, Piece,
    Replacement, Sealed, Task, Transform,
};
pub use context::{Context, Response};
pub use owned::Owned;
pub use polity_contract::driver::{Endpoint, Implements, Login, Manifest, Refusals, StatusClass};
pub use request::{Request, Text};
#[doc(hidden)]
pub use step::step;

use std::future::Future;

/// A driver: its manifest, and how it performs and resolves operations.
pub trait Driver {
    /// The manifest. It must always be the same.
    fn manifest() -> Manifest;

    /// Performs an operation. For an operation that creates, this includes the request that creates and its answer.
    fn perform(cx: &Context) -> impl Future<Output = Result<serde_json::Value, Failure>>;

    /// Finds out the result of a create whose answer was lost. It may send only reads.
    fn resolve(cx: &Context, entry: &Entry) -> impl Future<Output = Finding>;
}

/// A failure that asks for no wait and is not doubtful.
pub fn failure(code: Code, message: impl Into<String>) -> Failure {
    Failure {
        code,
        message: message.into(),
        retry_after: None,
        doubtful: false,
    }
}

/// The failure of an operation that a driver does not implement.
pub fn unknown_operation(name: &str) -> Failure {
    failure(
        Code::Unimplemented,
        format!("this driver has no operation {name}"),
    )
}

/// The items that most drivers use.
pub mod prelude {
    pub use crate::join::{join, join_all};
    pub use crate::{
        Code, Context, Driver, Endpoint, Entry, Failure, Finding, Implements, Login, Manifest, Owned,
        Request, Response, Text, failure, tree, unknown_operation,
    };
    pub use serde_json::{Value, json};
}

/// Exports a driver as a component. In a native build it does nothing.
#[macro_export]
macro_rules! driver {
    ($driver:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;

            impl $crate::bindings::exports::polity::driver::driver_info::Guest for Component {
                fn describe() -> String {
                    $crate::say_panics();
                    <$driver as $crate::Driver>::manifest().to_json()
                }
            }

            impl $crate::bindings::exports::polity::driver::operations::Guest for Component {
                fn step(call: $crate::Call) -> $crate::Outcome {
                    $crate::say_panics();
                    $crate::step::<$driver>(call)
                }
            }

    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}

/// Reports the message and the place of a panic to the host before the trap.
#[doc(hidden)]
#[cfg(target_arch = "wasm32")]
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("a panic without a message");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        bindings::polity::driver::diagnostics::panicked(message, &location);
    }));
}
