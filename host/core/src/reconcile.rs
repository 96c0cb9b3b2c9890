//! One pass, as data.
//!
//! # Flow
//!
//! ```text
//! start ─┬─ identity ─► Stepping ⇄ Asking ─ granted ─┐
//!        ├─ entries ──────────────────► Resolving ◄──┘
//!        └─ lifecycle ► Stepping ⇄ Asking, Acting ◄─┘
//!                          └─ concluded, fault ► Publishing ─► end ─┬─► finished
//!                                                                  └─► Deciding ─► finished
//! ```
//!
//! # Guarantees
//!
//! - A [`Phase`] holds exactly what is valid in it. A phase consumes itself when it handles an event, and returns
//!   what follows. An event that fits no row of a phase is a [`Flow::Bug`], never a silent wait.
//! - A handler reads a [`Shared`] and leaves [`Command`]s. The controller performs the commands after the handler has
//!   returned. A handler that needs its commands performed before it goes on returns [`Flow::Again`].
//! - No phase knows another one: it returns with what the next one begins ([`Flow::Enter`]). Only the loop of the controller
//!   calls handlers.

mod acting;
mod context;
mod deciding;
#[cfg(test)]
pub(crate) mod fixture;
mod flow;
mod frame;
mod object_questions;
mod own_writes;
mod pass_end;
mod publishing;
mod questions;
mod resolving;
mod role;
mod stepping;
mod work;

use crate::contract::Role;
use crate::object::Object;
use crate::record::Outcome;
use crate::shared::terms::NotSent;

#[cfg(test)]
pub(crate) use acting::tests::panicking;
#[cfg(test)]
pub(crate) use fixture::{binding as fixture_binding, stop as fixture_stop};

pub(crate) use context::{Command, Context, Report};
pub(crate) use deciding::{delay_of, of_read};
pub(crate) use flow::{Flow, NextPhase, PhaseEvent, PhaseWait};
pub(crate) use frame::{
    AnswerDelta, CLUSTER_LONGEST, Dependency, Frame, LastPass, primary_scope, primary_scopes, reaches,
};
pub(crate) use pass_end::{PassEnd, PassResult};
pub(crate) use publishing::MESSAGE;
pub(crate) use work::{EntryHistory, Work};

/// The phase of a pass.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The pass asks the cloud for the outcome of each create in doubt.
    Resolving(resolving::Resolving),
    /// The pass calls a policy.
    Stepping(stepping::Stepping),
    /// The pass answers the questions of a step.
    Asking(questions::Asking),
    /// The pass performs the acts of a step.
    Acting(acting::Acting),
    /// The pass writes its conclusion to the primary.
    Publishing(publishing::Publishing),
    /// The pass asks the retry policy how long the key waits.
    Deciding(deciding::Deciding),
}

/// What follows when a pass has ended: its retry policy may have to decide how long the key waits.
pub(crate) fn end(ended: PassEnd, context: &mut Context<'_>) -> Flow<Phase> {
    ended.decide(context).map(Phase::Deciding)
}

/// The first phase of a pass.
pub(crate) fn start(frame: &Frame) -> NextPhase {
    match frame.binding.policy(Role::Identity) {
        Some(_) => NextPhase::Stepping(role::RoleRun::new(Role::Identity)),
        None => NextPhase::Resolving,
    }
}

impl Phase {
    /// The phase that is to be entered.
    pub(crate) fn of(next: NextPhase, context: &mut Context<'_>) -> Self {
        use publishing::Publishing;

        match next {
            NextPhase::Resolving => Phase::Resolving(resolving::Resolving::default()),
            NextPhase::Stepping(run) => Phase::Stepping(stepping::Stepping::of(run)),
            NextPhase::Asking(run, asks) => Phase::Asking(questions::Asking::new(run, asks)),
            NextPhase::Acting(run, acts) => Phase::Acting(acting::Acting::new(run, acts)),
            NextPhase::Publishing(concluded, outcome) => {
                Phase::Publishing(Publishing::conclusion(concluded, outcome, context))
            }
            NextPhase::PublishingFault(message) => Phase::Publishing(Publishing::fault(message, context)),
            NextPhase::PublishingDefect(what) => Phase::Publishing(Publishing::bug(what, context.frame)),
        }
    }

    /// Handles an event, and returns what follows.
    pub(crate) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow<Phase> {
        let ends = match event {
            PhaseEvent::NotSent(NotSent::LeaseLost) => Some(Outcome::LeaseLost),
            PhaseEvent::NotSent(NotSent::Cut) => Some(Outcome::Stopped),
            _ => None,
        };
        if let Some(outcome) = ends {
            return Flow::Finish(self.interrupt(outcome, false, context.frame, context.work));
        }
        match self {
            Phase::Resolving(phase) => phase.on_event(event, context).map(Phase::Resolving),
            Phase::Stepping(phase) => phase.on_event(event, context).map(Phase::Stepping),
            Phase::Asking(phase) => phase.on_event(event, context).map(Phase::Asking),
            Phase::Acting(phase) => phase.on_event(event, context).map(Phase::Acting),
            Phase::Publishing(phase) => phase.on_event(event, context).map(Phase::Publishing),
            Phase::Deciding(phase) => phase.on_event(event, context).map(Phase::Deciding),
        }
    }

    /// Whether a write of the primary was asked for.
    fn writes_primary(&self) -> bool {
        match self {
            Phase::Acting(phase) => phase.writes_primary(),
            Phase::Publishing(phase) => phase.writes_primary(),
            Phase::Resolving(_) | Phase::Stepping(_) | Phase::Asking(_) | Phase::Deciding(_) => false,
        }
    }

    /// What the phase waits for.
    pub(crate) fn awaited(&self) -> PhaseWait<'_> {
        match self {
            Phase::Asking(phase) => phase.awaited(),
            _ => PhaseWait::Call,
        }
    }

    /// Ends a pass early: the lease is lost, or the host must stop. `was_sent` says whether the change that it asked for, if
    /// there is one, is in flight.
    pub(crate) fn interrupt(
        self,
        outcome: Outcome,
        was_sent: bool,
        frame: &Frame,
        work: &mut Work,
    ) -> PassResult {
        // Nobody hears how a write in flight ends. The next pass reads the object first, or it may meet a conflict with
        // this write.
        if was_sent && self.writes_primary() {
            work.behind = work.current.as_ref().map(Object::version);
        }
        match self {
            Phase::Deciding(phase) => return phase.interrupt(),
            Phase::Stepping(phase) => phase.leave(frame, work),
            Phase::Asking(phase) => phase.leave(frame, work),
            Phase::Acting(phase) => phase.interrupt(was_sent, frame, work),
            Phase::Resolving(_) | Phase::Publishing(_) => {}
        }
        PassResult::plain(outcome)
    }
}
