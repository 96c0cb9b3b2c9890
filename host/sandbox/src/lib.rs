//! The sandbox: WebAssembly policies, loaded from bytes and called one step at a time.
//!
//! ```text
//! bytes → component → machine code → imports, role and manifest checked → Policy::step(pass) → Stepped
//!         compile.rs, confined.rs     load.rs                             policy.rs
//! ```
//!
//! This is the only crate of the host that sees the generated types of `wit/`; `convert.rs` turns them into core's.
//!
//! # Guarantees
//!
//! - A policy can call one function, `diagnostics.panicked`, and nothing else: no clock, no randomness, no file.
//! - Bytes are read and compiled by a process of its own, which has bounds of time and memory.
//! - A step has so many bytes in all its memories and tables together, and the host keeps so many bytes of code.
//! - Every step runs in a fresh instance: nothing that one step leaves in memory is seen by another.
//! - The same step uses the same fuel and returns the same bytes, or faults the same way. Two seat belts are not
//!   deterministic and marked so: wall time and the host's stack.
//!
//! # Never here
//!
//! Whether a request is allowed, whether its JSON is valid, what happens next: that is core's.

mod compile;
mod confined;
mod convert;
mod engine;
mod error;
mod load;
mod manifest;
mod memory;
mod policy;
mod settings;
mod shape;
mod state;
mod wit;

pub use compile::{Compiler, answer as compile_confined};
pub use confined::{Bounds, Confined, Stopped, answer as answer_confined};
pub use engine::{Sandbox, SandboxConfig};
pub use error::LoadError;
pub use policy::{Policy, ReusedInstance};
pub use settings::Allocation;
