//! What a step's store holds: its memory limit, and what the guest said before it trapped.

use wasmtime::ResourceLimiter;

use crate::wit::lifecycle::polity::policy::{diagnostics, types};

/// Elements of a table: no policy compiled from Rust comes near.
const TABLE: usize = 100_000;

/// What a step's store holds.
pub(crate) struct State {
    memory: u64,
    /// Message and place of the guest's panic.
    pub(crate) panic: Option<(String, String)>,
}

/// The guest asked for more memory than it may have.
#[derive(Debug, thiserror::Error)]
#[error("it asked for {wanted} bytes of memory, {limit} are allowed")]
pub(crate) struct OutOfMemory {
    wanted: usize,
    limit: u64,
}

impl State {
    pub(crate) fn new(memory: u64) -> Self {
        State { memory, panic: None }
    }
}

impl types::Host for State {}

impl diagnostics::Host for State {
    fn panicked(&mut self, message: String, location: String) {
        self.panic = Some((message, location));
    }
}

impl ResourceLimiter for State {
    fn memory_growing(&mut self, _: usize, wanted: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if wanted as u64 > self.memory {
            return Err(OutOfMemory {
                wanted,
                limit: self.memory,
            }
            .into());
        }
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, wanted: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(wanted <= TABLE)
    }
}
