//! The events that a phase handles, and what follows them. No phase knows another one: it says with what the next one begins.

use super::pass_end::{PassEnd, PassResult};
use super::role::RoleRun;
use super::work::CheckedConclusion;
use crate::call::{Reply, Scope};
use crate::contract::{Act, Ask};
use crate::record::Outcome;
use crate::shared::terms::NotSent;

/// What a phase waits for.
pub(crate) enum PhaseWait<'a> {
    /// A watch that has not listed yet.
    Watch(&'a Scope),
    /// The reply of a call.
    Call,
}

/// An event that a phase handles.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub(crate) enum PhaseEvent {
    /// The phase was entered, and all earlier commands are performed.
    Entered,
    /// A call was answered: the slot of the call, and the reply.
    Reply(usize, Reply),
    /// The call of this slot took too long and was cut.
    Cut(usize),
    /// The change that the phase asked for was not sent. Without the lease, or when the host stops, the pass ends.
    NotSent(NotSent),
    /// The watch that the question of this slot waits for has listed.
    Listed(usize),
    /// The pass may hold texts of any size from now on.
    Grown,
}

/// What follows an event.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub(crate) enum Flow<P> {
    /// The phase waits for an event.
    Wait(P),
    /// Enter the same phase again, after the commands are performed.
    Again(P),
    /// Enter another phase, after the commands are performed.
    Enter(NextPhase),
    /// The pass has ended, and its retry policy may have to decide how long the key waits.
    End(PassEnd),
    /// The pass has ended, and the wait of the key is decided.
    Finish(PassResult),
    /// The event fits no row of the phase.
    Bug(String),
}

/// A phase that is to be entered, and with what it begins.
#[derive(Debug)]
pub(crate) enum NextPhase {
    Resolving,
    Stepping(RoleRun),
    Asking(RoleRun, Vec<Ask>),
    Acting(RoleRun, Vec<Act>),
    /// Publishes what the pass concluded.
    Publishing(CheckedConclusion, Outcome),
    /// Publishes the fault of a policy.
    PublishingFault(String),
    /// Publishes a defect of this host.
    PublishingDefect(String),
}

impl<P> Flow<P> {
    /// The result for an event that fits no row of this phase.
    pub(super) fn unexpected(phase: &str, event: &PhaseEvent) -> Self {
        Flow::Bug(format!("{phase} got {event:?}"))
    }

    /// The same, of a phase in another form.
    pub(super) fn map<Q>(self, form: impl FnOnce(P) -> Q) -> Flow<Q> {
        match self {
            Flow::Wait(phase) => Flow::Wait(form(phase)),
            Flow::Again(phase) => Flow::Again(form(phase)),
            Flow::Enter(next) => Flow::Enter(next),
            Flow::End(ended) => Flow::End(ended),
            Flow::Finish(finished) => Flow::Finish(finished),
            Flow::Bug(what) => Flow::Bug(what),
        }
    }
}
