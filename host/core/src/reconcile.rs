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
//!   returned. A handler that needs its commands performed before it goes on returns [`Flow::Enter`].
//! - No handler calls a handler of another phase. Only the loop of the controller calls handlers.

mod acting;
mod asking;
mod deciding;
#[cfg(test)]
pub(crate) mod fixture;
mod frame;
mod looking;
mod own;
mod publishing;
mod resolving;
mod role;
mod stepping;
mod work;

use std::time::Duration;

use crate::call::{Call, Reply, Scope};
use crate::contract::{Failure, ObjectRef, Role};
use crate::fault::Fault;
use crate::grants::{Refusal, Ungranted};
use crate::object::Object;
use crate::record::Outcome;
use crate::shared::Shared;
use crate::shared::cache::Change;
use crate::shared::guards::Guard;
use crate::shared::terms::{NotSent, Terms};

#[cfg(test)]
pub(crate) use acting::tests::panicking;
#[cfg(test)]
pub(crate) use fixture::{binding as fixture_binding, stop as fixture_stop};

pub(crate) use deciding::{Clamped, Finished, delay_of};
pub(crate) use frame::{
    Dependency, Frame, LastPass, Moved, Questions, primary_scope, primary_scopes, reaches,
};
pub(crate) use publishing::{Ended, MESSAGE};
pub(crate) use work::{Entry, EntryHistory, Work};

/// The longest time for a read or write of the cluster. A call that takes longer is cut. No act may take longer.
pub(crate) const CLUSTER_LONGEST: Duration = Duration::from_secs(5);

/// The phase of a pass.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The pass asks the cloud for the outcome of each create in doubt.
    Resolving(resolving::Resolving),
    /// The pass calls a policy.
    Stepping(stepping::Stepping),
    /// The pass answers the questions of a step.
    Asking(asking::Asking),
    /// The pass performs the acts of a step.
    Acting(acting::Acting),
    /// The pass writes its conclusion to the primary.
    Publishing(publishing::Publishing),
    /// The pass asks the retry policy how long the key waits.
    Deciding(deciding::Deciding),
}

/// What a phase waits for.
pub(crate) enum Awaited<'a> {
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
pub(crate) enum Flow {
    /// The phase waits for an event.
    Wait(Phase),
    /// Enter the next phase, or the same phase again, after the commands are performed.
    Enter(Phase),
    /// The pass has ended, and its retry policy may have to decide how long the key waits.
    End(Ended),
    /// The pass has ended, and the wait of the key is decided.
    Finish(Finished),
    /// The event fits no row of the phase.
    Bug(String),
}

/// A command of a handler to the controller.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub(crate) enum Command {
    /// Make a call as soon as it may, and on its terms if it changes something. The reply goes to this slot.
    Call {
        slot: usize,
        call: Call,
        /// How long it may take; `None` for what a worker does.
        longest: Option<Duration>,
        terms: Option<Terms>,
    },
    /// Watch this scope, and enqueue the key when an object of it changes. The watch stays open at least until the
    /// pass ends.
    Watch(Scope),
    /// Send `Listed` to this slot when the watch of the scope has listed.
    AwaitList { slot: usize, scope: Scope },
    /// Send `Grown` as soon as the pass may hold texts of any size.
    Grow,
    /// Take a lock that no pass holds.
    Lock(String),
    /// Enter objects into the cache that this pass read from the API server, to answer a question or for itself. All
    /// other answers of the pass may be outdated by them.
    Saw {
        objects: Vec<Object>,
        answers: Option<Questions>,
    },
    /// Enter an object into the cache that this pass wrote, the primary or another one. What is its own doing is no
    /// news to the pass.
    Wrote { object: Object, own: Vec<Change> },
    /// Remove an object with this uid from the cache.
    Gone {
        object: ObjectRef,
        uid: String,
        own: Vec<Change>,
    },
    /// Release all locks of the pass before it has ended.
    Unlock,
    /// Report something on the binding of the pass.
    Report(Report),
}

/// A report for the status of a binding.
#[derive(Debug)]
pub(crate) enum Report {
    /// An act was sent.
    Acted,
    /// A policy broke its contract.
    Faulted(Fault),
    /// A policy requested something that the binding does not grant.
    Ungranted(Ungranted),
    /// The API server did not keep the value at this path.
    NotKept(String),
    /// The wait that a retry policy asked for was changed to fit the limits.
    Clamped(Clamped),
}

/// The state that a handler works with.
pub(crate) struct Context<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) work: &'a mut Work,
    /// What all passes share, to be read.
    pub(crate) view: &'a Shared,
    pub(crate) commands: Vec<Command>,
}

/// The phase that writes a defect of this host as a condition on the primary.
pub(crate) fn host_defect(what: String, frame: &Frame) -> Phase {
    publishing::Publishing::bug(what, frame)
}

/// The first phase of a pass.
pub(crate) fn start(frame: &Frame) -> Phase {
    match frame.binding.policy(Role::Identity) {
        Some(_) => stepping::Stepping::begin(Role::Identity),
        None => Phase::Resolving(resolving::Resolving::default()),
    }
}

impl Phase {
    /// Handles an event, and returns what follows.
    pub(crate) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        let ends = match event {
            PhaseEvent::NotSent(NotSent::LeaseLost) => Some(Outcome::LeaseLost),
            PhaseEvent::NotSent(NotSent::Cut) => Some(Outcome::Stopped),
            _ => None,
        };
        if let Some(outcome) = ends {
            return Flow::Finish(self.interrupt(outcome, false, context.frame, context.work));
        }
        match self {
            Phase::Resolving(phase) => phase.on_event(event, context),
            Phase::Stepping(phase) => phase.on_event(event, context),
            Phase::Asking(phase) => phase.on_event(event, context),
            Phase::Acting(phase) => phase.on_event(event, context),
            Phase::Publishing(phase) => phase.on_event(event, context),
            Phase::Deciding(phase) => phase.on_event(event, context),
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
    pub(crate) fn awaited(&self) -> Awaited<'_> {
        match self {
            Phase::Asking(phase) => phase.awaited(),
            _ => Awaited::Call,
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
    ) -> Finished {
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
        Finished::plain(outcome)
    }

    /// The name of the phase, for texts.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Phase::Resolving(_) => "Resolving",
            Phase::Stepping(_) => "Stepping",
            Phase::Asking(_) => "Asking",
            Phase::Acting(_) => "Acting",
            Phase::Publishing(_) => "Publishing",
            Phase::Deciding(_) => "Deciding",
        }
    }
}

impl Flow {
    /// The result for an event that fits no row of this phase.
    fn unexpected(phase: &Phase, event: &PhaseEvent) -> Flow {
        Flow::Bug(format!("{} got {event:?}", phase.name()))
    }
}

impl Context<'_> {
    fn is_guarded(&self, guard: Guard) -> bool {
        self.view.guards.stand(guard)
    }

    fn command(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Whether the API server may hold another version of the primary than this pass knows. In that case every write
    /// with the known version would fail.
    fn is_behind(&self) -> bool {
        self.work.behind.is_some() && self.is_guarded(Guard::StaleKeysReadFirst)
    }

    fn report(&mut self, report: Report) {
        self.commands.push(Command::Report(report));
    }

    /// The failure that a policy gets for a refused request. A missing grant is also reported on the binding.
    fn refuses(&mut self, refusal: Refusal) -> Failure {
        if let Refusal::Ungranted(ungranted) = &refusal {
            self.report(Report::Ungranted(ungranted.clone()));
        }
        refusal.into()
    }

    /// Makes a call that changes nothing outside, as soon as its room has a place.
    fn call(&mut self, slot: usize, call: Call, longest: Duration) {
        self.command(Command::Call {
            slot,
            call,
            longest: Some(longest),
            terms: None,
        });
    }

    /// Has a worker do something.
    fn work(&mut self, call: Call) {
        self.command(Command::Call {
            slot: 0,
            call,
            longest: None,
            terms: None,
        });
    }

    /// Makes a call that changes something outside, on these terms. A phase asks for one such call at a time.
    fn change(&mut self, slot: usize, call: Call, longest: Duration, terms: Terms) {
        self.command(Command::Call {
            slot,
            call,
            longest: Some(longest),
            terms: Some(terms),
        });
    }
}
