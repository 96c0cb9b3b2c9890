//! Memory of guests that is used again. It is cleared in user space; otherwise the kernel would map, fault in
//! and unmap it for every step. This costs less, and threads do not contend for the kernel's page tables.
//!
//! # Guarantees
//!
//! - A guest finds only zeroes: everything that the guest before it could write to is cleared when its
//!   instance ends.
//! - A thread keeps at most [`KEPT`] bytes.
//! - The host uses no more memory than the guest asked for. Room for growth is address space, which has no
//!   page until it is written to. A memory that grows is moved by the kernel page by page, so it never exists
//!   twice.

use std::cell::RefCell;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType, Result};

/// The most bytes that a thread keeps, in all its blocks. A step of a shipped policy takes a quarter of a
/// megabyte. A step of a policy that is linked with the default stack takes more than one.
pub(crate) const KEPT: usize = 4 << 20;
/// The size of a WebAssembly page in bytes, which is the smallest block.
const PAGE: usize = 64 << 10;
/// The most room for growth in bytes. A guest that grows once may grow again.
const ROOM: usize = 1 << 20;
/// The bytes that are checked together before they are cleared: a page of the machine.
const CLEARED: usize = 4 << 10;

thread_local! {
    /// Blocks without a user; the one that was unused for longest comes first.
    static FREE: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// The error if the machine has no memory for a guest that is allowed to have it.
#[derive(Debug, thiserror::Error)]
#[error("the machine cannot provide {wanted} bytes of memory that the policy may use: {source}")]
pub(crate) struct NoMemory {
    wanted: usize,
    source: rustix::io::Errno,
}

/// A block of memory. It holds only zeroes as long as no guest uses it. Guests write to it, so it is reached
/// by pointers only.
struct Block {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the block owns its bytes and lends them to one instance at a time.
#[allow(unsafe_code, reason = "memory that a guest writes to")]
unsafe impl Send for Block {}

impl Block {
    /// Takes the smallest block of this thread that is large enough, or a new one.
    fn take(size: usize) -> Result<Self, NoMemory> {
        let fits = |free: &mut Vec<Block>| {
            let large_enough = free.iter().enumerate().filter(|(_, b)| b.capacity >= size);
            let (index, _) = large_enough.min_by_key(|(_, block)| block.capacity)?;
            Some(free.remove(index))
        };
        // While the thread ends, its blocks are gone, and a new one is mapped.
        let kept = FREE.try_with(|free| fits(&mut free.borrow_mut())).ok().flatten();
        kept.map_or_else(|| Block::map(whole_pages(size)?), Ok)
    }

    fn map(capacity: usize) -> Result<Self, NoMemory> {
        // SAFETY: the kernel chooses an address that is not in use.
        #[allow(unsafe_code, reason = "memory that a guest writes to")]
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                capacity,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        Block::at(mapped, capacity)
    }

    /// Enlarges the block. The kernel may move its bytes.
    fn grow(&mut self, capacity: usize) -> Result<(), NoMemory> {
        // SAFETY: the block owns its bytes, and nobody reads or writes them while it is borrowed.
        #[allow(unsafe_code, reason = "memory that a guest writes to")]
        let mapped = unsafe {
            rustix::mm::mremap(
                self.base.as_ptr().cast(),
                self.capacity,
                capacity,
                MremapFlags::MAYMOVE,
            )
        };
        // If the kernel moved the pages, the new block owns them, and the old one must not unmap them. If it
        // failed, the old block stays as it is.
        let grown = Block::at(mapped, capacity)?;
        std::mem::forget(std::mem::replace(self, grown));
        Ok(())
    }

    fn at(mapped: rustix::io::Result<*mut std::ffi::c_void>, capacity: usize) -> Result<Self, NoMemory> {
        let wanted = capacity;
        let base = mapped.map_err(|source| NoMemory { wanted, source })?;
        let source = rustix::io::Errno::NOMEM;
        Ok(Block {
            base: NonNull::new(base.cast()).ok_or(NoMemory { wanted, source })?,
            capacity,
        })
    }

    /// Clears what a guest could write to, and keeps the block for the next guest.
    fn give_back(mut self, used: usize) {
        if self.capacity > KEPT {
            return;
        }
        self.clear(used);
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            free.push(self);
            while free.iter().map(|block| block.capacity).sum::<usize>() > KEPT {
                free.remove(0);
            }
        });
    }

    /// Clears the pages that are not zero. A guest writes to few of its pages. Most pages that it left alone
    /// do not exist in the machine; reading one is faster than writing it and does not create it.
    fn clear(&mut self, used: usize) {
        debug_assert!(used <= self.capacity);
        // SAFETY: `used` bytes belong to this block, every bit pattern is a valid number, and no guest uses
        // the block any more. The kernel maps at page boundaries, so the bytes are aligned.
        #[allow(unsafe_code, reason = "memory that a guest wrote to")]
        let words = unsafe {
            std::slice::from_raw_parts_mut(self.base.as_ptr().cast::<u64>(), used / size_of::<u64>())
        };
        for page in words.chunks_mut(CLEARED / size_of::<u64>()) {
            let clean = |words: &[u64]| words.iter().fold(0, |all, word| all | word) == 0;
            if !page.chunks(64).all(clean) {
                page.fill(0);
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block owns these mapped bytes.
        #[allow(unsafe_code, reason = "memory that a guest wrote to")]
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.capacity) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Rounds up to whole pages, at least one.
fn whole_pages(bytes: usize) -> Result<usize, NoMemory> {
    bytes.max(1).checked_next_multiple_of(PAGE).ok_or(NoMemory {
        wanted: bytes,
        source: rustix::io::Errno::NOMEM,
    })
}

/// The memory of one instance.
struct Memory {
    /// `None` only while the value is dropped.
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

// SAFETY: no method reads or writes the bytes through `&self`. Only wasmtime does, by its own rules.
#[allow(unsafe_code, reason = "memory that a guest writes to")]
unsafe impl Sync for Memory {}

// SAFETY: the pointer belongs to a live mapping of `byte_capacity` bytes, which moves only in `grow_to`.
#[allow(unsafe_code, reason = "wasmtime wants memory this way")]
unsafe impl LinearMemory for Memory {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        self.block().capacity
    }

    fn grow_to(&mut self, new_size: usize) -> Result<()> {
        let capacity = self.byte_capacity();
        if new_size > capacity {
            let wanted = new_size
                .saturating_add(ROOM)
                .min(capacity.saturating_mul(2))
                .max(new_size);
            // Room for growth alone must not make a block too large to be kept.
            let wanted = if new_size <= KEPT {
                wanted.min(KEPT)
            } else {
                wanted
            };
            let block = self.block.as_mut().expect("it is there until the end");
            block.grow(whole_pages(wanted)?)?;
        }
        self.size = new_size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.block().base.as_ptr()
    }
}

/// Creates the memories of guests.
pub(crate) struct Memories;

// SAFETY: a new memory is all zeroes and belongs to one instance until it is dropped.
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
        // The engine is configured without reservation and guard pages: its code checks every access.
        if reserved.is_some_and(|bytes| bytes > 0) || guard > 0 {
            return Err("these memories have no reservation and no guard".into());
        }
        let block = Block::take(minimum).map_err(|e| e.to_string())?;
        Ok(Box::new(Memory {
            block: Some(block),
            size: minimum,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(size: usize) -> Memory {
        Memory {
            block: Some(Block::take(size).expect("there is memory")),
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

    /// Bytes of a memory that are in the machine's memory, of all that it has room for.
    fn resident(memory: &Memory) -> usize {
        let (from, page) = (memory.as_ptr() as usize, 4 << 10);
        let present = |entry: &[u8]| entry[7] & 0x80 != 0;
        let mut map = std::fs::File::open("/proc/self/pagemap").expect("Linux says which pages there are");
        let mut entries = vec![0; memory.byte_capacity() / page * 8];
        std::io::Seek::seek(&mut map, std::io::SeekFrom::Start((from / page * 8) as u64))
            .expect("it is mapped");
        std::io::Read::read_exact(&mut map, &mut entries).expect("it is mapped");
        entries.chunks(8).filter(|entry| present(entry)).count() * page
    }

    #[test]
    fn a_memory_that_grows_in_small_steps_has_no_more_bytes_than_its_guest_wrote() {
        // Machines that make huge pages on their own account round up to one.
        const HUGE: usize = 2 << 20;
        let mut memory = memory(PAGE);
        fill(&memory, 7);
        for pages in 2..=128 {
            memory.grow_to(pages * PAGE).expect("it grows");
            fill(&memory, 7);
            assert!(resident(&memory) <= memory.byte_size() + HUGE);
            assert!(memory.byte_capacity() <= memory.byte_size() + ROOM);
        }
    }

    #[test]
    fn single_bytes_that_a_guest_wrote_are_cleared() {
        let first = memory(KEPT / 2);
        for at in [0, CLEARED - 1, CLEARED, KEPT / 4 + 1, KEPT / 2 - 1] {
            // SAFETY: the byte belongs to this memory, and nobody else has it.
            #[allow(unsafe_code, reason = "as a guest writes")]
            unsafe {
                first.as_ptr().add(at).write(7);
            }
        }
        let place = first.as_ptr();
        drop(first);
        let second = memory(KEPT / 2);
        assert_eq!(second.as_ptr(), place, "the memory is used again");
        assert!(bytes(&second).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_thread_keeps_so_many_bytes_and_no_more() {
        let sizes = [KEPT / 2, KEPT / 4, KEPT / 8, KEPT / 2, KEPT, KEPT + PAGE];
        let many: Vec<Memory> = sizes.into_iter().map(memory).collect();
        for memory in many {
            drop(memory);
            let kept: usize = FREE.with(|free| free.borrow().iter().map(|block| block.capacity).sum());
            assert!((1..=KEPT).contains(&kept), "{kept} bytes are kept");
        }
    }

    #[test]
    fn a_policy_linked_with_the_default_stack_finds_its_memory_kept() {
        // The stack of 1 MiB, data and heap.
        let mut first = memory(17 * PAGE);
        first.grow_to(40 * PAGE).expect("it grows");
        let place = first.as_ptr();
        drop(first);
        assert_eq!(memory(17 * PAGE).as_ptr(), place);
    }

    #[test]
    fn a_size_that_no_machine_has_is_an_error() {
        assert!(Block::take(usize::MAX).is_err());
        assert!(Block::take(1 << 60).is_err());
        assert!(memory(PAGE).grow_to(usize::MAX).is_err());
    }
}
