//! Memories of guests that are used again: cleared in user space rather than mapped, faulted in and unmapped by the
//! kernel for every step. That costs less, and threads do not meet in the kernel's page tables.
//!
//! # Guarantees
//!
//! - A guest finds nothing but zeroes: all that the guest before could write to is cleared when its instance ends.
//! - A thread keeps at most [`KEPT`] memories of at most [`LARGEST_KEPT`] bytes.

use std::cell::RefCell;
use std::ptr::NonNull;

use wasmtime::{LinearMemory, MemoryCreator, MemoryType, Result};

/// Memories that a thread keeps: one is enough for steps, which never nest.
const KEPT: usize = 2;
/// Bytes of the largest memory that is kept; a step of a shipped policy takes a quarter of it.
const LARGEST_KEPT: usize = 1 << 20;

thread_local! {
    static FREE: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// Zeroes, as far as no guest has it. Owns the bytes, which only pointers reach: guests write to them.
struct Block {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: it owns its bytes and lends them to one instance at a time.
#[allow(unsafe_code, reason = "memory that a guest writes to")]
unsafe impl Send for Block {}

impl Block {
    /// From this thread's memories, or new.
    fn take(size: usize) -> Self {
        let fits = |free: &mut Vec<Block>| {
            let index = free.iter().position(|block| block.capacity >= size)?;
            Some(free.swap_remove(index))
        };
        // While the thread ends there are no memories to take from any more.
        let kept = FREE.try_with(|free| fits(&mut free.borrow_mut())).ok().flatten();
        kept.unwrap_or_else(|| {
            let bytes = Box::leak(vec![0; size.max(1)].into_boxed_slice());
            Block {
                capacity: bytes.len(),
                base: NonNull::from(bytes).cast(),
            }
        })
    }

    /// Clears what a guest could write to and keeps it for the next.
    fn give_back(self, used: usize) {
        if self.capacity > LARGEST_KEPT {
            return;
        }
        debug_assert!(used <= self.capacity);
        // SAFETY: so many bytes belong to this block, and no guest has it any more.
        #[allow(unsafe_code, reason = "memory that a guest wrote to")]
        unsafe {
            self.base.write_bytes(0, used);
        }
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(self);
            }
        });
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = NonNull::slice_from_raw_parts(self.base, self.capacity);
        // SAFETY: the slice was leaked from such a box, and the block owns it.
        #[allow(unsafe_code, reason = "memory that a guest wrote to")]
        drop(unsafe { Box::from_raw(bytes.as_ptr()) });
    }
}

/// The memory of one instance.
struct Memory {
    /// None only while it is dropped.
    block: Option<Block>,
    size: usize,
}

impl Memory {
    fn block(&self) -> &Block {
        self.block.as_ref().expect("it is there until the end")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.give_back(self.size);
        }
    }
}

// SAFETY: nothing here reads or writes the bytes through `&self`; who does is wasmtime, by its own rules.
#[allow(unsafe_code, reason = "memory that a guest writes to")]
unsafe impl Sync for Memory {}

// SAFETY: the pointer is that of a live allocation of `byte_capacity` bytes, which moves only in `grow_to`.
#[allow(unsafe_code, reason = "wasmtime wants memory this way")]
unsafe impl LinearMemory for Memory {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        self.block().capacity
    }

    fn grow_to(&mut self, new_size: usize) -> Result<()> {
        if new_size > self.byte_capacity() {
            // A guest that grows once may grow again.
            let larger = Block::take(new_size.max(self.byte_capacity() * 2));
            // SAFETY: both blocks have so many bytes, they are two allocations, and this instance has both.
            #[allow(unsafe_code, reason = "memory that a guest wrote to")]
            unsafe {
                larger.base.copy_from_nonoverlapping(self.block().base, self.size);
            }
            if let Some(old) = self.block.replace(larger) {
                old.give_back(self.size);
            }
        }
        self.size = new_size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.block().base.as_ptr()
    }
}

/// Makes the memories of guests.
pub(crate) struct Memories;

// SAFETY: the memories are zeroed, and each belongs to one instance until that is dropped.
#[allow(unsafe_code, reason = "wasmtime wants memory this way")]
unsafe impl MemoryCreator for Memories {
    fn new_memory(
        &self,
        _: MemoryType,
        minimum: usize,
        _: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        // The engine is configured without either: its code checks every access.
        if reserved.is_some_and(|bytes| bytes > 0) || guard > 0 {
            return Err("these memories have no reservation and no guard".into());
        }
        Ok(Box::new(Memory {
            block: Some(Block::take(minimum)),
            size: minimum,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(size: usize) -> Memory {
        Memory {
            block: Some(Block::take(size)),
            size,
        }
    }

    #[allow(unsafe_code, reason = "as a guest writes and reads")]
    fn fill(memory: &Memory, byte: u8) {
        // SAFETY: so many bytes belong to this memory, and nobody else has it.
        unsafe { memory.as_ptr().write_bytes(byte, memory.byte_size()) }
    }

    #[allow(unsafe_code, reason = "as a guest writes and reads")]
    fn bytes(memory: &Memory) -> Vec<u8> {
        // SAFETY: so many bytes belong to this memory, and nobody else has it.
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.byte_size()) }.to_vec()
    }

    #[test]
    fn nothing_is_left_of_the_guest_before() {
        let first = memory(1 << 16);
        let place = first.as_ptr();
        fill(&first, 7);
        drop(first);
        let mut second = memory(1 << 16);
        assert_eq!(second.as_ptr(), place, "the memory is used again");
        assert!(bytes(&second).iter().all(|byte| *byte == 0));
        second.grow_to(1 << 17).expect("it grows");
        assert!(bytes(&second).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_was_written_stays_when_a_memory_grows_and_what_is_new_is_zero() {
        let mut memory = memory(1 << 16);
        fill(&memory, 7);
        memory.grow_to(3 << 16).expect("it grows");
        let all = bytes(&memory);
        assert!(all[..1 << 16].iter().all(|byte| *byte == 7));
        assert!(all[1 << 16..].iter().all(|byte| *byte == 0));
        // The smaller piece, and all of the larger one, are clean for the next.
        drop(memory);
        for size in [1 << 16, 3 << 16] {
            assert!(bytes(&super::tests::memory(size)).iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_thread_keeps_few_memories_and_no_large_ones() {
        let many: Vec<Memory> = (0..5).map(|_| memory(1 << 16)).collect();
        drop(many);
        drop(memory(LARGEST_KEPT + 1));
        FREE.with(|free| {
            let free = free.borrow();
            assert_eq!(free.len(), KEPT);
            assert!(free.iter().all(|block| block.capacity <= LARGEST_KEPT));
        });
    }
}
