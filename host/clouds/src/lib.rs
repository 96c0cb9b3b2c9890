//! Clouds: what a policy's `cloud` requests reach.
//!
//! A [`Cloud`] publishes a catalogue of operations and performs them. A request passes through [`Front`], which every
//! adapter gets for free: the operation is looked up, its arguments are checked against the catalogue's schema, sealed
//! arguments are replaced by the values they name, and everything that comes back is scrubbed of those values. What
//! is left for an adapter is to perform and to say, of a create whose answer was lost, what came of it ([`Cloud::settle`]).
//!
//! [`adapters`] lists the adapters of this build. [`sim`] is always there: a cloud that behaves as badly as clouds do.
//!
//! Never here: decisions (nothing is retried, nothing is remembered for a policy), addresses from objects, user data in
//! an answer.

mod adapters;
mod check;
mod cloud;
mod front;
mod redact;
mod sealed;
pub mod sim;

pub use adapters::{Adapter, OpenError, Opening, Persist, adapter, adapters, open};
pub use check::{CatalogueError, Checked};
pub use cloud::{BoxFuture, Cloud};
pub use front::Front;
pub use redact::Redactor;
pub use sealed::{NoSecrets, SecretRef, SecretResolver};

#[cfg(test)]
mod tests;
