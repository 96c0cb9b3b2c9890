//! The fuzz targets. Each is a plain function of bytes, which panics if a rule does not hold.
//!
//! libFuzzer calls them in `tests/fuzz`, for hours. The test `fuzz` calls them on every run, with the seeds
//! that are stored there and a fixed number of generated inputs. See `tests/README.md`.
//!
//! Bytes are read as choices, one after another. When the bytes run out, the first alternative is always
//! chosen. So every input ends, and a short input is a simple one.

pub mod api;
pub mod files;
pub mod json;
pub mod loader;
pub mod policy;
pub mod response;
pub mod weird;

use arbitrary::Unstructured;

/// The function of a target.
pub type Body = fn(&[u8]);

/// A target by its name.
pub const TARGETS: [(&str, Body); 6] = [
    ("api", api::run),
    ("files", files::run),
    ("json", json::run),
    ("loader", loader::run),
    ("policy", policy::run),
    ("response", response::run),
];

/// Choices made by bytes.
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

    /// A number below this one, which is at most 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// `true` with this probability, in 256ths.
    pub fn chance(&mut self, of_256: u8) -> bool {
        self.byte() > 255 - of_256
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// This many bytes, or as many as are left.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = self.0.len().min(most);
        self.0.bytes(len).unwrap_or_default()
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }

    /// The choices themselves, for code that generates its own values from them.
    pub fn unstructured(&mut self) -> &mut Unstructured<'a> {
        &mut self.0
    }

    /// A short text of the bytes, with invalid UTF-8 replaced.
    pub fn text(&mut self) -> String {
        let len = self.below(24);
        String::from_utf8_lossy(self.bytes(len)).into_owned()
    }

    /// A number that is likely to be a special case.
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
