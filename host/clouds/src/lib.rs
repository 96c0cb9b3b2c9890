//! Clouds: they answer the `cloud` requests of policies.
//!
//! A [`Cloud`] publishes a catalogue of operations and performs them. A request passes through [`Gateway`],
//! which is the same for every adapter. It looks up the operation, checks the arguments against the
//! catalogue's schema, replaces sealed arguments by the values that they name, and scrubs those values from
//! every answer. It also keeps sessions ([`Sessions`]): a policy holds a handle, and the adapter sees its own
//! token. An adapter only opens sessions, performs operations, and resolves creates whose answer was lost
//! ([`Cloud::resolve`]).
//!
//! [`catalogue`] defines services and their operations, each once, for the simulated cloud and for real ones.
//! A cloud publishes the operations that it performs.
//!
//! An [`Adapter`] tells how a cloud's configuration is checked and how the cloud is opened. The host decides
//! which adapters there are; this crate knows no cloud of another crate.
//!
//! This crate never decides (it retries nothing, and remembers nothing for a policy), never uses addresses from
//! objects, and never returns user data in an answer.

mod adapters;
pub mod catalogue;
mod clock;
mod cloud;
mod digest;
mod gateway;
mod millis;
#[cfg(feature = "node")]
pub mod node;
mod offload;
pub mod priority;
mod redact;
mod sealed;
mod session;
mod sessions;
mod single_flight;
mod validate;

pub use adapters::{Adapter, ConfigError, OpenError, Opening, Storage, configuration, schema};
pub use clock::Clock;
pub use cloud::{BoxFuture, Cloud};
pub use gateway::Gateway;
pub use millis::Millis;
pub use offload::{AT_ONCE, compute, metered, offload, spend, weight};
pub use polity_core::catalogue::SecretRef;
pub use redact::{REDACTED, REPEATS, Redactor, SHORTEST_SEALED};
pub use sealed::{NoSecrets, SecretResolver};
pub use session::{Opened, PlanSecret, PlanToken, SecretContent, SessionPlan, SessionRequest};
pub use sessions::{IDLE, MARGIN, MOST_SESSIONS, Sessions};
pub use validate::{CatalogueError, CatalogueValidator, Way};
