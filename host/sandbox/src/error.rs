//! Why bytes are not a policy, in words that are not longer than people read.

use polity_core::contract::Role;

use crate::confined::Stopped;

/// Why bytes are not a policy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The engine cannot be set up on this machine.
    #[error("the WebAssembly engine cannot be set up: {0}")]
    Engine(String),
    /// There are no bytes.
    #[error("it is empty")]
    Empty,
    /// It does not begin as a wasm file does.
    #[error("it is not WebAssembly: it does not begin with the bytes 00 61 73 6d")]
    NotWasm,
    /// Too many bytes.
    #[error("it has {size} bytes, at most {largest} are taken")]
    TooLarge {
        /// How many it has.
        size: usize,
        /// How many are taken.
        largest: usize,
    },
    /// A core module without the contract's description.
    #[error("it is not a policy: {0}")]
    NotComponent(String),
    /// Truncated, or not valid.
    #[error("it does not compile: {0}")]
    Compile(String),
    /// Compiling was stopped: by its bounds, or by the machine. Another time it may end.
    #[error("it does not compile: {0}")]
    Stopped(Stopped),
    /// Too much machine code.
    #[error("it compiles to {size} bytes, at most {largest} are taken")]
    CompiledTooLarge {
        /// How many it has.
        size: usize,
        /// How many are taken.
        largest: u64,
    },
    /// It declares more than the host has memory for.
    #[error("it is too much for a host: {0}")]
    Shape(String),
    /// In the words of the process that compiles: any of those above.
    #[error("{0}")]
    Refused(String),
    /// It wants something that no policy gets.
    #[error("it imports {0}, and a policy may import nothing but polity:policy/diagnostics@0.2")]
    Import(String),
    /// It answers no question of the contract.
    #[error(
        "it exports {found}, and a policy exports polity:policy/policy-info@0.2 and one of lifecycle, identity, retry"
    )]
    Export {
        /// What it exports.
        found: String,
    },
    /// Its `describe` broke the contract.
    #[error("its describe failed: {0}")]
    Describe(String),
    /// Its manifest names another role than it exports.
    #[error("its manifest says {said:?}, and it exports {exported:?}")]
    Role {
        /// What the manifest says.
        said: Role,
        /// What it exports.
        exported: Role,
    },
}

impl LoadError {
    pub(crate) fn engine(e: wasmtime::Error) -> Self {
        LoadError::Engine(format!("{e:#}"))
    }

    /// Whether the same bytes may load another time: nothing is wrong with them that is known.
    pub fn may_pass(&self) -> bool {
        matches!(self, LoadError::Stopped(_))
    }
}

/// Characters of a text that bytes from outside have a part in: names in them can be as long as the bytes.
const WORDS: usize = 2_000;

/// A text that people are shown, no longer than they read.
pub(crate) fn cut(text: String) -> String {
    match text.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
