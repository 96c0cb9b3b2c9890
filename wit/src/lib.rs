//! The contract between Polity and its policies: its WIT as text ([`wit`]), and its types in plain Rust. [`driver`]
//! has what drivers of clouds say of themselves.
//!
//! `types.wit` documents each type. The Rust types exist so that core, the adapters and the recordings need
//! no WebAssembly. Only the sandbox converts between the two. Authors of policies use `polity-sdk`, whose
//! types are generated from the same WIT.
//!
//! **Not here.** No I/O, no clock, no decisions. This crate knows what a host and a policy tell each other,
//! and nothing of how they work.

#[cfg(feature = "types")]
mod defaults;
#[cfg(feature = "types")]
mod document;
#[cfg(feature = "types")]
pub mod driver;
#[cfg(feature = "types")]
pub mod merge;
#[cfg(feature = "types")]
mod types;
pub mod wit;

#[cfg(feature = "types")]
pub use {defaults::with_defaults, document::Document, types::*};
