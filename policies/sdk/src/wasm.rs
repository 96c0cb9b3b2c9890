//! What only a component needs: an allocator that fits a fresh instance per step, and the panic's last words.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

use crate::bindings::polity::policy::diagnostics;

const PAGE: usize = 64 * 1024;
/// Pages by which memory grows at least: growing may move all of it. A step on a 16 KB object takes some 100 KiB, one
/// on a usual object stays in what the linker reserved (`--initial-heap`).
const GROWS_BY: usize = 2;

/// Hands out memory upwards and takes back only the last piece: an instance lives for one step.
pub struct Bump {
    free: UnsafeCell<Free>,
}

#[allow(unsafe_code, reason = "the linker's")]
unsafe extern "C" {
    /// Where the module's own data ends.
    static __heap_base: u8;
}

/// Addresses: the next free byte and the end of the memory at hand. Zero before the first allocation.
struct Free {
    next: usize,
    end: usize,
}

// SAFETY: wasm32-unknown-unknown without atomics has one thread.
#[allow(unsafe_code, reason = "a global allocator")]
unsafe impl Sync for Bump {}

impl Bump {
    /// The allocator, empty.
    #[allow(clippy::new_without_default, reason = "made once, in a static")]
    pub const fn new() -> Self {
        Bump {
            free: UnsafeCell::new(Free { next: 0, end: 0 }),
        }
    }
}

// SAFETY: every piece handed out lies between the addresses that `Free` holds, is aligned as asked, and is given to
// nobody else until it is returned as the last piece. Nothing here calls back into the allocator.
#[allow(unsafe_code, reason = "a global allocator")]
unsafe impl GlobalAlloc for Bump {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one thread, and no reference to `Free` outlives a call.
        let free = unsafe { &mut *self.free.get() };
        let at = (free.next + layout.align() - 1) & !(layout.align() - 1);
        match at.checked_add(layout.size()) {
            Some(next) if next <= free.end && free.next != 0 => {
                free.next = next;
                at as *mut u8
            }
            _ => self.more(free, layout),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        let free = unsafe { &mut *self.free.get() };
        if piece as usize + layout.size() == free.next {
            free.next = piece as usize;
        }
    }

    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let free = unsafe { &mut *self.free.get() };
        let at = piece as usize;
        if at + layout.size() == free.next {
            // The last piece grows and shrinks where it is.
            if let Some(next) = at.checked_add(size).filter(|next| *next <= free.end) {
                free.next = next;
                return piece;
            }
        } else if size <= layout.size() {
            return piece;
        }
        // SAFETY: the alignment is a valid layout's, and both pieces hold at least the smaller of the two sizes.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                std::ptr::copy_nonoverlapping(piece, moved, layout.size().min(size));
            }
            moved
        }
    }
}

impl Bump {
    /// What the module's data leaves of its memory on the first call, then more pages.
    #[cold]
    fn more(&self, free: &mut Free, layout: Layout) -> *mut u8 {
        if free.next == 0 {
            free.next = &raw const __heap_base as usize;
            free.end = core::arch::wasm32::memory_size(0) * PAGE;
        }
        let align = |address: usize| (address + layout.align() - 1) & !(layout.align() - 1);
        let fits = |at: usize, end: usize| at.checked_add(layout.size()).is_some_and(|next| next <= end);
        if !fits(align(free.next), free.end) {
            // What is left of the memory before is given up unless it adjoins.
            let pages = (layout.size() + layout.align()).div_ceil(PAGE).max(GROWS_BY);
            let before = core::arch::wasm32::memory_grow(0, pages);
            if before == usize::MAX {
                return std::ptr::null_mut();
            }
            if before * PAGE != free.end {
                free.next = before * PAGE;
            }
            // The very last page of a 4 GiB memory ends where an address cannot.
            free.end = (before * PAGE).saturating_add(pages * PAGE);
        }
        let at = align(free.next);
        free.next = at + layout.size();
        at as *mut u8
    }
}

/// Tells the host what a panic said and where, before the trap. Called at the beginning of each export.
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("a panic without a message");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        diagnostics::panicked(message, &location);
    }));
}
