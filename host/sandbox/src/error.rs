//! The reasons why bytes are not a policy.

use polity_core::contract::Role;

use crate::confined::Stopped;

/// The reason why bytes are not a policy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The engine cannot be set up on this machine.
    #[error("the WebAssembly engine cannot be set up: {0}")]
    Engine(String),
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The file does not begin as a WebAssembly file does.
    #[error("the file is not WebAssembly: it does not begin with the bytes 00 61 73 6d")]
    NotWasm,
    /// The file is too large.
    #[error("the file has {size} bytes; the limit is {largest}")]
    TooLarge {
        /// The size in bytes.
        size: usize,
        /// The limit in bytes.
        largest: usize,
    },
    /// The file is a core module without the contract's description.
    #[error("the file is not a policy: {0}")]
    NotComponent(String),
    /// The file is cut off or not valid.
    #[error("the policy does not compile: {0}")]
    Compile(String),
    /// A limit or the machine stopped the compilation. Another try may succeed.
    #[error("the policy was not compiled: {0}")]
    Stopped(Stopped),
    /// The policy compiles to too much machine code.
    #[error("the policy compiles to {size} bytes of machine code; the limit is {largest}")]
    CompiledTooLarge {
        /// The size of the code in bytes.
        size: usize,
        /// The limit in bytes.
        largest: u64,
    },
    /// The policy declares more than the host accepts.
    #[error("the policy is too large for a host: {0}")]
    Shape(String),
    /// Any of the above, in the words of the process that compiles.
    #[error("{0}")]
    Refused(String),
    /// The policy imports something that no policy may import.
    #[error("the policy imports {0}; only diagnostics and debug of polity:policy@0.2 may be imported")]
    Import(String),
    /// The policy does not export what the contract demands.
    #[error(
        "the policy exports {found}; it must export polity:policy/policy-info@0.2 and one of lifecycle, identity and retry"
    )]
    Export {
        /// The names of its exports.
        found: String,
    },
    /// The policy's `describe` broke the contract.
    #[error("describe failed: {0}")]
    Describe(String),
    /// The manifest names another role than the policy exports.
    #[error("the manifest names the role {said:?}, but the policy exports {exported:?}")]
    Role {
        /// The role in the manifest.
        said: Role,
        /// The role that the policy exports.
        exported: Role,
    },
}

impl LoadError {
    pub(crate) fn engine(e: wasmtime::Error) -> Self {
        LoadError::Engine(format!("{e:#}"))
    }

    /// Whether the same bytes may load another time.
    pub fn may_pass(&self) -> bool {
        matches!(self, LoadError::Stopped(_))
    }
}

/// The most characters of a message: names in a policy can be as long as the policy.
const WORDS: usize = 2_000;

/// A message, cut to a length that people read.
pub(crate) fn cut(text: String) -> String {
    match text.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
