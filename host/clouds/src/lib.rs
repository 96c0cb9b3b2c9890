//! Clouds: what a policy's `cloud` requests reach.
//!
//! A [`Cloud`] publishes a catalogue of operations and performs them. A request passes through [`Gateway`], which every
//! adapter gets for free: the operation is looked up, its arguments are checked against the catalogue's schema, sealed
//! arguments are replaced by the values they name, and everything that comes back is scrubbed of those values. Sessions
//! are kept there as well ([`Sessions`]): a policy holds a handle, the adapter sees its own token. What is left for an
//! adapter is to open sessions, to perform, and to say, of a create whose answer was lost, what came of it
//! ([`Cloud::resolve`]).
//!
//! What clouds can do stands in [`catalogue`]: services and their operations, each defined once, for the simulated
//! cloud and for real ones. A cloud publishes those that it performs.
//!
//! An [`Adapter`] says how a cloud is checked and opened. Which ones there are is the host's to say: nothing here knows
//! of a cloud that stands in another crate.
//!
//! Never here: decisions (nothing is retried, nothing is remembered for a policy), addresses from objects, user data in
//! an answer.

mod adapters;
pub mod catalogue;
mod check;
mod clock;
mod cloud;
mod gateway;
mod millis;
#[cfg(feature = "node")]
pub mod node;
mod redact;
mod sealed;
mod session;
mod sessions;
mod single_flight;

pub use adapters::{Adapter, ConfigError, OpenError, Opening, Storage, configuration};
pub use check::{CatalogueError, Checked, Way};
pub use clock::Clock;
pub use cloud::{BoxFuture, Cloud};
pub use gateway::Gateway;
pub use millis::Millis;
pub use polity_core::catalogue::SecretRef;
pub use redact::Redactor;
pub use sealed::{NoSecrets, SecretResolver};
pub use session::{Opened, PlanSecret, SecretContent, SessionPlan, SessionRequest};
pub use sessions::{IDLE, MARGIN, MOST_SESSIONS, Sessions};
