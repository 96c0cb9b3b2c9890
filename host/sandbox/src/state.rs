//! The data of a step's store: how much memory the step may have and has, and the guest's message before it
//! trapped.

use wasmtime::ResourceLimiter;

use crate::memory::NoMemory;
use crate::wit::lifecycle::polity::policy::{debug, diagnostics, types};

/// The most instances of core modules in one step. A policy compiled from Rust has one. Toolchains that
/// compose a language's runtime from modules use a few dozen.
pub(crate) const INSTANCES: usize = 64;
/// The most tables in one step: about one for each instance.
pub(crate) const TABLES: usize = 64;
/// The most linear memories in one step. Modules that are linked together share a memory.
pub(crate) const MEMORIES: usize = 8;
/// The most resource handles in one step. The host keeps some dozen bytes for each.
pub(crate) const HANDLES: usize = 10_000;
/// The host's bytes for an element of a table: a pointer, and the same again because a growing table doubles
/// its storage.
const ELEMENT: usize = 2 * size_of::<usize>();
/// The most characters of a panic message that are kept. People read the first line.
const PANIC: usize = 4_096;
/// The most messages of a step for its author, each as long as that of a panic.
const MESSAGES: usize = 100;

/// The data of a step's store.
pub(crate) struct State {
    /// The bytes that the step may have.
    limit: u64,
    /// The bytes that the step has in all its memories, tables and instances. They live as long as the step,
    /// so this number never falls.
    held: u64,
    /// The message and the place of the guest's panic.
    pub(crate) panic: Option<(String, String)>,
    /// The messages for the author, if somebody wants to see them.
    pub(crate) debug: Option<Vec<String>>,
}

/// The error of a guest that asks for more memory than it may have.
#[derive(Debug, thiserror::Error)]
#[error("memories, tables and instances together would take {wanted} bytes; the limit of a step is {limit}")]
pub(crate) struct OutOfMemory {
    wanted: u64,
    limit: u64,
}

impl State {
    /// The state of a step that may have `limit` bytes. `instances` are the bytes of its instances without
    /// memories and tables.
    pub(crate) fn new(limit: u64, instances: u64) -> Self {
        State {
            limit,
            held: instances,
            panic: None,
            debug: None,
        }
    }

    /// The bytes of all memories, tables and instances together.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// The error if the instances alone take more than a step may have.
    pub(crate) fn begins_beyond(&self) -> Option<OutOfMemory> {
        (self.held > self.limit).then_some(OutOfMemory {
            wanted: self.held,
            limit: self.limit,
        })
    }

    fn take(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        let wanted = self.held.saturating_add(bytes as u64);
        if wanted > self.limit {
            return Err(OutOfMemory {
                wanted,
                limit: self.limit,
            });
        }
        self.held = wanted;
        Ok(())
    }
}

impl types::Host for State {}

impl diagnostics::Host for State {
    fn panicked(&mut self, message: String, location: String) {
        self.panic = Some((cut(&message), cut(&location)));
    }
}

impl debug::Host for State {
    fn say(&mut self, message: String) {
        if let Some(debug) = self.debug.as_mut().filter(|debug| debug.len() < MESSAGES) {
            debug.push(cut(&message));
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(PANIC).collect()
}

impl ResourceLimiter for State {
    /// Refuses growth beyond the memory's own maximum before it is counted: the growth does not happen, and
    /// the guest is told as WebAssembly defines it. Growth that is counted and then fails for another reason
    /// stays counted. It could be taken back in `memory_grow_failed`, but that is also called for growth that
    /// was never counted, so a guest could lower its count.
    fn memory_growing(
        &mut self,
        current: usize,
        wanted: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| wanted > maximum) {
            return Ok(false);
        }
        self.take(wanted.saturating_sub(current))?;
        Ok(true)
    }

    /// Ends the step if the machine has no memory. If the guest were told instead, the step would depend on
    /// an input that no recording holds.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        if error.is::<NoMemory>() {
            Err(error)
        } else {
            Ok(())
        }
    }

    fn table_growing(
        &mut self,
        current: usize,
        wanted: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| wanted > maximum) {
            return Ok(false);
        }
        self.take(wanted.saturating_sub(current).saturating_mul(ELEMENT))?;
        Ok(true)
    }

    /// Allows no instance if the instances together are too large.
    fn instances(&self) -> usize {
        match self.begins_beyond() {
            Some(_) => 0,
            None => INSTANCES,
        }
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 64 << 10;

    #[test]
    fn growth_of_all_memories_and_tables_is_summed() {
        let mut state = State::new(4 * PAGE as u64, 0);
        assert!(state.memory_growing(0, PAGE, None).expect("one page"));
        assert!(state.memory_growing(0, 2 * PAGE, None).expect("three pages"));
        assert!(
            state
                .table_growing(0, PAGE / ELEMENT, None)
                .expect("four pages' worth")
        );
        let error = state
            .memory_growing(PAGE, 2 * PAGE, None)
            .expect_err("a fifth page");
        assert!(error.is::<OutOfMemory>(), "{error}");
        assert_eq!(state.held(), 4 * PAGE as u64);
    }

    #[test]
    fn growth_that_cannot_happen_neither_counts_nor_lowers_the_count() {
        let mut state = State::new(4 * PAGE as u64, 0);
        assert!(state.memory_growing(0, PAGE, Some(PAGE)).expect("its minimum"));
        assert!(!state.memory_growing(PAGE, 2 * PAGE, Some(PAGE)).expect("refused"));
        assert!(!state.table_growing(0, 2, Some(1)).expect("refused"));
        let beyond = wasmtime::Error::msg("memory growth exceeds memory type's limits");
        state
            .memory_grow_failed(beyond)
            .expect("the guest is told, as always");
        assert_eq!(state.held(), PAGE as u64);
    }

    #[test]
    fn numbers_from_outside_do_not_overflow() {
        let mut state = State::new(u64::MAX, 0);
        state.memory_growing(0, usize::MAX, None).expect("it is allowed");
        state.memory_growing(0, usize::MAX, None).expect("it is allowed");
        state.table_growing(0, usize::MAX, None).expect("it is allowed");
        assert_eq!(state.held(), u64::MAX);
    }
}
