//! Clouds that are reached through drivers.
//!
//! ```text
//! CloudRequest → cloud.rs → operation.rs ⇄ the driver (polity-sandbox): which requests to send, what responses mean
//!                               ├ check.rs    which requests a driver may make, reads.rs which of them only read
//!                               ├ seal.rs     values of sealed arguments, places.rs in which fields they are
//!                               ├ unsealed.rs values that were sent lately
//!                               ├ reached.rs  the driver and its server, which all operations share
//!                               ├ polity-http login, signature, connection
//!                               ├ renewal.rs  when the connection's own session is renewed
//!                               ├ logouts.rs  ends sessions while nobody waits
//!                               ├ effect.rs   what a failure may have changed
//!                               └ exchanged.rs the exchanges that are stored, to replay them to another driver
//! ```
//!
//! A driver decides which requests are sent and what a response means. The host does everything else, because a driver is not
//! trusted with it: credentials and sealed values, addresses, the effect of a failure, how often a request is sent, and when.

mod catalogue;
mod check;
mod cloud;
mod connection;
mod effect;
mod exchanged;
mod logouts;
mod operation;
mod places;
mod reached;
mod reads;
mod renewal;
mod seal;
mod traffic;
mod unsealed;
mod waits;

pub use catalogue::{ManifestError, answer_schema};
pub use cloud::DriverCloud;
pub use connection::{Connection, Credentials, CurrentTransport, Rates};
pub use exchanged::{Difference, Ended, Exchanged, Keeps, Part};
pub use polity_clouds::metered;
pub use reached::Spent;
pub use traffic::{Calls, Throttled};
