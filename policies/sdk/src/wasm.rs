//! The parts that only a component needs: an allocator for an instance that lives for one step, and a panic
//! hook.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

use crate::bindings::polity::policy::diagnostics;

const PAGE: usize = 64 * 1024;
/// The least number of pages by which memory grows. Growing may move all of the memory. A step on a 16 KB
/// object takes some 100 KiB; a step on a usual object fits into what the linker reserved (`--initial-heap`).
const GROWS_BY: usize = 2;

/// An allocator that hands out memory upwards and takes back only the last piece. An instance lives for one
/// step, so more is not needed.
pub struct Bump {
    free: UnsafeCell<Free>,
}

#[allow(unsafe_code, reason = "the linker's")]
unsafe extern "C" {
    /// The end of the module's own data.
    static __heap_base: u8;
}

/// The addresses of the next free byte and of the end of the memory at hand. Both are zero before the first
/// allocation.
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

// SAFETY: every piece lies between the addresses in `Free`, is aligned as requested, and is given to nobody
// else until it is returned as the last piece. Nothing here calls back into the allocator.
#[allow(unsafe_code, reason = "a global allocator")]
unsafe impl GlobalAlloc for Bump {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: there is one thread, and no reference to `Free` outlives a call.
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
            // The last piece grows and shrinks in place.
            if let Some(next) = at.checked_add(size).filter(|next| *next <= free.end) {
                free.next = next;
                return piece;
            }
        } else if size <= layout.size() {
            return piece;
        }
        // SAFETY: the alignment is that of a valid layout, and both pieces hold at least the smaller of the
        // two sizes.
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
    /// Provides more memory: on the first call what the module's data leaves of its memory, later more pages.
    #[cold]
    fn more(&self, free: &mut Free, layout: Layout) -> *mut u8 {
        if free.next == 0 {
            free.next = &raw const __heap_base as usize;
            free.end = core::arch::wasm32::memory_size(0) * PAGE;
        }
        let align = |address: usize| (address + layout.align() - 1) & !(layout.align() - 1);
        let fits = |at: usize, end: usize| at.checked_add(layout.size()).is_some_and(|next| next <= end);
        if !fits(align(free.next), free.end) {
            // The rest of the memory at hand is given up unless the new pages adjoin it.
            let pages = (layout.size() + layout.align()).div_ceil(PAGE).max(GROWS_BY);
            let before = core::arch::wasm32::memory_grow(0, pages);
            if before == usize::MAX {
                return std::ptr::null_mut();
            }
            if before * PAGE != free.end {
                free.next = before * PAGE;
            }
            // An address cannot name the end of the last page of a 4 GiB memory.
            free.end = (before * PAGE).saturating_add(pages * PAGE);
        }
        let at = align(free.next);
        free.next = at + layout.size();
        at as *mut u8
    }
}

/// Reports the message and place of a panic to the host before the trap. Each export calls this first.
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("a panic without a message");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        diagnostics::panicked(message, &location);
    }));
}
