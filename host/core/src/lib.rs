//! The deterministic core of Polity: every event goes in, and everything that must be done comes out.
//!
//! It has no clock, no I/O, no randomness and no threads: the same inputs give the same outputs, byte for byte. The
//! engine of the host turns [`call::Call`]s into futures and their [`call::Reply`]s into inputs. The simulation does
//! the same with a seeded loop instead of an executor.

pub mod binding;
pub mod call;
pub mod catalogue;
pub mod controller;
pub mod fault;
pub mod grants;
pub mod key;
pub mod merge;
pub mod object;
pub mod projection;
mod reconcile;
pub mod record;
pub mod render;
pub mod retry;
pub mod selection;
pub mod time;
mod tree;

/// The contract with policies. It is a crate of its own.
pub use polity_contract as contract;
