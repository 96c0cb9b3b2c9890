//! What a step's store holds: what the step may have of the host's memory, and what the guest said before it trapped.

use wasmtime::ResourceLimiter;

use crate::memory::NoMemory;
use crate::wit::lifecycle::polity::policy::{diagnostics, types};

/// Instances of core modules in one step. A policy compiled from Rust has one; toolchains that compose a language's
/// runtime from modules have a few dozen.
pub(crate) const INSTANCES: usize = 64;
/// Tables in one step: about one for each instance.
pub(crate) const TABLES: usize = 64;
/// Linear memories in one step: modules that are linked together share theirs.
pub(crate) const MEMORIES: usize = 8;
/// Handles of resources in one step. The host keeps some dozen bytes for each.
pub(crate) const HANDLES: usize = 10_000;
/// Bytes of the host for an element of a table: a pointer, and as much again, because what holds a table that grows
/// doubles.
const ELEMENT: usize = 2 * size_of::<usize>();
/// Characters of what a guest says of its panic that are kept. People read the first line.
const PANIC: usize = 4_096;

/// What a step's store holds.
pub(crate) struct State {
    /// Bytes that the step may have.
    limit: u64,
    /// Bytes that it has, in all its memories and tables, and beside them in its instances. These live as long as the
    /// step, so nothing is given back.
    held: u64,
    /// Message and place of the guest's panic.
    pub(crate) panic: Option<(String, String)>,
}

/// The guest asked for more memory than it may have.
#[derive(Debug, thiserror::Error)]
#[error("its memories, tables and instances together would have {wanted} bytes, a step may have {limit}")]
pub(crate) struct OutOfMemory {
    wanted: u64,
    limit: u64,
}

impl State {
    /// Of a step that may have so many bytes, of which its instances take some beside their memories and tables.
    pub(crate) fn new(limit: u64, instances: u64) -> Self {
        State {
            limit,
            held: instances,
            panic: None,
        }
    }

    /// Bytes that all memories, tables and instances have, together.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Whether the instances alone are more than a step may have.
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
        let cut = |text: String| text.chars().take(PANIC).collect();
        self.panic = Some((cut(message), cut(location)));
    }
}

impl ResourceLimiter for State {
    /// Growth beyond a memory's own maximum is refused before it is counted: it will not happen, and the guest hears of
    /// it as WebAssembly says. What is counted and then fails for another reason stays counted, which only errs on the
    /// safe side: taking back what `memory_grow_failed` tells of would let a guest lower the count, because that is also
    /// called for growth that was never counted.
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

    /// The machine's own lack of memory ends the step: to the guest it would be an input that no recording has.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        match error.is::<NoMemory>() {
            true => Err(error),
            false => Ok(()),
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

    /// None is made where all of them are too much.
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
