//! Faults: a policy broke its contract.

use serde::{Deserialize, Serialize};

use crate::contract::Step;

/// The rule of the contract that a policy broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The policy trapped: a panic, an unreachable instruction, or a stack overflow.
    Trap,
    /// The policy used more fuel than a step or a pass may.
    OutOfFuel,
    /// The policy asked for more memory than its limit.
    OutOfMemory,
    /// The policy ran longer than the wall limit. The same step may succeed the next time.
    WallTime,
    /// The policy returned something invalid or too large.
    BadOutput,
    /// The conclusion of the policy does not use an act that the policy made.
    JournalMismatch,
    /// The policy returned `pending([])`, or asked only for answers that its journal already holds.
    Stalled,
    /// The policy used more steps, entries or journal bytes than a pass may.
    TooLong,
}

/// A policy broke its contract. The pass ends, and its object is quarantined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind:?}: {message}")]
pub struct Fault {
    /// The rule that was broken.
    pub kind: FaultKind,
    /// A text for people: what trapped where, with the message of the panic if there was one.
    pub message: String,
    /// Whether the same step would fault again. That is not certain for wall time and for an overflow of the host's
    /// stack.
    pub deterministic: bool,
}

impl Fault {
    /// A fault that the same input causes again.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Fault {
            kind,
            message: message.into(),
            deterministic: true,
        }
    }
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutput {
    /// The step, or the fault of the policy.
    pub outcome: Result<Step, Fault>,
    /// The fuel that the step used. It is deterministic and part of the recording.
    pub fuel: u64,
}

/// How a person raises a limit of a binding.
pub(crate) fn raised_by(limit: &str) -> String {
    format!("; spec.limits.{limit} of the binding raises the limit")
}
