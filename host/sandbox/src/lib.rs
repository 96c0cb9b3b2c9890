//! The sandbox: loads WebAssembly policies from bytes and calls them one step at a time.
//!
//! ```text
//! bytes → component → machine code → imports, role and manifest checked → Policy::step(pass) → Stepped
//!         compile.rs, confined.rs     load.rs                             policy.rs
//! ```
//!
//! This is the only crate of the host that sees the types generated from `wit/`. `convert.rs` turns them into
//! core's.
//!
//! # Guarantees
//!
//! - A policy can call `diagnostics.panicked` and `debug.say`, and nothing else: it has no clock, no randomness
//!   and no files.
//! - A policy is read and compiled by a process of its own, with limits of time and memory.
//! - One limit holds for all memories and tables of a step together, and one for all machine code that the
//!   host keeps.
//! - Every step runs in a fresh instance. No step sees what another left in memory.
//! - The same step uses the same fuel and returns the same bytes, or faults in the same way. Two further
//!   limits are not deterministic, and their faults are marked as such: real time and the host's stack.
//!
//! # Not here
//!
//! Core decides whether a request is granted, whether its JSON is valid, and what happens next.

mod compile;
mod confined;
mod convert;
pub mod driver;
mod engine;
mod error;
mod hex;
mod load;
mod manifest;
mod memory;
mod policy;
mod settings;
mod shape;
mod state;
mod wit;

pub use compile::{Compiler, KeepsCode, answer as compile_confined};
pub use confined::{Bounds, Confined, Stopped};
pub use engine::{Sandbox, SandboxConfig};
pub use error::LoadError;
pub use policy::{Policy, ReusedInstance};
pub use settings::Allocation;
