//! A policy broke its contract.

use serde::{Deserialize, Serialize};

use crate::contract::Step;

/// How a policy broke its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// It trapped: a panic, an unreachable instruction, a stack overflow.
    Trap,
    /// It used more fuel than a step or a pass may.
    OutOfFuel,
    /// It asked for more memory than its limit.
    OutOfMemory,
    /// It ran longer than the wall limit. Not deterministic: a seat belt.
    WallTime,
    /// What it returned is not valid, or too large.
    BadOutput,
    /// An act that it made is not among what its conclusion used.
    JournalMismatch,
    /// It returned `pending([])`, or asked only for what the journal already holds.
    Stalled,
    /// It took more steps, entries or journal bytes than a pass may.
    TooLong,
}

/// A policy broke its contract: the pass ends and its object is quarantined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind:?}: {message}")]
pub struct Fault {
    /// Which rule of the contract was broken.
    pub kind: FaultKind,
    /// For people: what trapped where, with the panic's message if there was one.
    pub message: String,
    /// Whether the same step would fault again. Wall time and host stack overflow are not deterministic.
    pub deterministic: bool,
}

impl Fault {
    /// A fault that the same input brings again.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Fault {
            kind,
            message: message.into(),
            deterministic: true,
        }
    }
}

/// What came of one call into a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Stepped {
    /// The step, or how the policy broke its contract.
    pub outcome: Result<Step, Fault>,
    /// Fuel used: deterministic, part of the recording.
    pub fuel: u64,
}
