//! The contract between Polity and its policies, once: its WIT as text ([`wit`]), and its types in plain Rust.
//!
//! `types.wit` documents each type. The mirror in Rust exists so that core, the adapters and the recordings need no
//! WebAssembly: the sandbox alone converts between the two. What an author of a policy writes against is `polity-sdk`,
//! whose types are generated from the same WIT.
//!
//! **What it never does.** No I/O, no clock, no decision: it knows what is said between a host and a policy, and nothing
//! of how either of them works.

mod defaults;
mod document;
pub mod merge;
mod types;
pub mod wit;

pub use defaults::with_defaults;
pub use document::Document;
pub use types::*;
