//! What is fuzzed: each target is a plain function of bytes, which panics when something does not hold.
//!
//! libFuzzer calls them in `tests/fuzz`, for hours; the test `fuzz` calls them with the seeds that are kept there and
//! with a fixed count of made ones, on every run. See `tests/README.md`.
//!
//! Bytes are read as choices, one after another: what runs out of bytes chooses the first of everything, so that every
//! input has an end, and a short one is a simple one.

pub mod api;
pub mod files;
pub mod json;
pub mod loader;
pub mod policy;
pub mod weird;

use arbitrary::Unstructured;

/// What a target does with its bytes.
pub type Body = fn(&[u8]);

/// A target by its name.
pub const TARGETS: [(&str, Body); 5] = [
    ("api", api::run),
    ("files", files::run),
    ("json", json::run),
    ("loader", loader::run),
    ("policy", policy::run),
];

/// Choices, made by bytes.
pub struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    /// The choices of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices(Unstructured::new(bytes))
    }

    /// Whether there are none left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A byte; 0 when there is none left.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    /// Two bytes.
    pub fn short(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A number below this one, of at most 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// Yes in so many of 256.
    pub fn chance(&mut self, of_256: u8) -> bool {
        self.byte() > 255 - of_256
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// So many bytes as they are, or as many as are left.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = self.0.len().min(most);
        self.0.bytes(len).unwrap_or_default()
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }

    /// The choices themselves, for those who make something of their own of them.
    pub fn unstructured(&mut self) -> &mut Unstructured<'a> {
        &mut self.0
    }

    /// A short text as the bytes have it, replaced where it is no UTF-8.
    pub fn text(&mut self) -> String {
        let len = self.below(24);
        String::from_utf8_lossy(self.bytes(len)).into_owned()
    }

    /// A number that somebody may not have thought of.
    pub fn number(&mut self) -> u64 {
        match self.below(12) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX >> 1,
            4 => u64::from(u32::MAX),
            5 => 1 << 53,
            6 => 3_153_600_000_000,
            7 => 0x8000_0000_0000_0000,
            _ => u64::from(self.short()),
        }
    }
}
