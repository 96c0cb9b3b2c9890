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
//! - A [`Phase`] holds exactly what is valid in it. An event is handed to the phase, which consumes itself and says what
//!   follows; an event that fits no row of a phase is a [`Flow::Bug`], never a silent wait.
//! - A handler reads a [`View`] and leaves [`Command`]s; the controller performs them when the handler has returned. What
//!   a handler wants to see performed before it goes on, it waits for with [`Flow::Enter`].
//! - No handler calls another phase's: the loop of the controller does.

mod acting;
mod asking;
mod deciding;
#[cfg(test)]
pub(crate) mod fixture;
mod frame;
mod pending;
mod publishing;
mod resolving;
mod role;
mod stepping;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::binding::Binding;
use crate::call::{Call, Reply, Scope};
use crate::contract::{Failure, ObjectRef, Role};
use crate::controller::cache::Cache;
use crate::controller::journals::Journals;
use crate::controller::lease::Lease;
use crate::controller::locks::Locks;
use crate::controller::rooms::{Room, Rooms, room_of};
use crate::controller::{Guard, Guards};
use crate::fault::Fault;
use crate::grants::{Refusal, Ungranted};
use crate::object::Object;
use crate::record::Outcome;
use crate::time::Now;

#[cfg(test)]
pub(crate) use fixture::{binding as fixture_binding, stop as fixture_stop};

pub(crate) use deciding::{Clamped, Finished, answer_of, taken};
pub(crate) use frame::{
    Dependency, Frame, LastPass, Moved, Questions, primary_scope, primary_scopes, reaches,
};
pub(crate) use publishing::{Ended, MESSAGE};
pub(crate) use work::{Entry, Known, Work};

/// After this a read or write of the cluster is cut: the longest that any act may take.
pub(crate) const CLUSTER_LONGEST: Duration = Duration::from_secs(5);
/// After this a policy that has not returned is given up; its own wall limit is far below.
pub(crate) const STEP_LONGEST: Duration = Duration::from_mins(1);

/// Where a pass stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The cloud is asked what came of creates in doubt.
    Resolving(resolving::Resolving),
    /// A policy is called.
    Stepping(stepping::Stepping),
    /// The questions of a step are answered.
    Asking(asking::Asking),
    /// The acts of a step are performed.
    Acting(acting::Acting),
    /// What the pass concluded is written to its primary.
    Publishing(publishing::Publishing),
    /// The retry policy is asked how long to wait.
    Deciding(deciding::Deciding),
}

/// What a phase waits for.
pub(crate) enum Awaited<'a> {
    /// A watch that lists.
    Watch(&'a Scope),
    /// The lease, or room.
    Gate,
    /// An answer.
    Call,
}

/// What happens to a pass.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub(crate) enum PhaseEvent {
    /// It entered this phase; what was commanded before is done.
    Entered,
    /// A call was answered: its slot in the phase, and how.
    Reply(usize, Reply),
    /// The call of this slot took too long.
    Cut(usize),
    /// The watch that the question of this slot waits for has listed.
    Listed(usize),
    /// What a change waits for is there: the lease was renewed, or its room has a place.
    Opened,
}

/// What follows.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub(crate) enum Flow {
    /// The phase waits for an event.
    Wait(Phase),
    /// The next phase, or the same one again, once the commands are performed.
    Enter(Phase),
    /// The pass has ended; its retry policy may still have to say how long to wait.
    End(Ended),
    /// Nothing is left to be done.
    Finish(Finished),
    /// An event that fits no row.
    Bug(String),
}

/// What a handler wants done.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
pub(crate) enum Command {
    /// Make a call, as soon as its room has a place; its reply comes to this slot.
    Call {
        slot: usize,
        call: Call,
        longest: Duration,
    },
    /// Watch this, and enqueue the key when it changes, at least until the pass ends.
    Watch(Scope),
    /// Tell this slot when a watch has listed.
    AwaitList { slot: usize, scope: Scope },
    /// The journal of the pass holds so many bytes; whether it waits until others hold less.
    Hold { bytes: u64, waits: bool },
    /// Say when the lease is renewed.
    AwaitLease,
    /// Say when this room has a place.
    AwaitRoom(Room),
    /// Take a lock, which nobody holds.
    Lock(String),
    /// Enter what this host read of the primary into the cache.
    Saw(Object),
    /// Enter what this host wrote, the primary or another object, into the cache: it wakes others, not this key.
    Wrote(Object),
    /// Enter that an object of this uid is gone.
    Gone(ObjectRef, String),
    /// Release every lock before the pass has ended.
    Unlock,
    /// Enter that the primary is gone.
    PrimaryGone(Object),
    /// Say something of the binding.
    Report(Report),
}

/// What is said of a binding.
#[derive(Debug)]
pub(crate) enum Report {
    /// An act is performed.
    Acted,
    /// A policy broke its contract.
    Faulted(Fault),
    /// A policy requested what it is not granted.
    Ungranted(Ungranted),
    /// The API server did not keep a path.
    NotKept(String),
    /// What a retry policy said was not taken as it was.
    Clamped(Clamped),
}

/// What a handler may look at.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) now: Now,
    pub(crate) cache: &'a Cache,
    pub(crate) lease: &'a Lease,
    pub(crate) bindings: &'a BTreeMap<Arc<str>, Arc<Binding>>,
    pub(crate) locks: &'a Locks,
    pub(crate) rooms: &'a Rooms,
    pub(crate) journals: &'a Journals,
    /// Nothing more is begun.
    pub(crate) cutting: bool,
    pub(crate) guards: Guards,
}

/// What a handler works with.
pub(crate) struct Context<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) work: &'a mut Work,
    pub(crate) view: View<'a>,
    pub(crate) commands: Vec<Command>,
}

/// How far the one call of a phase that changes something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It is to be made.
    Due,
    /// It waits for the lease, or for room.
    Waiting,
    /// It was made.
    Sent,
}

/// Says on an object that this host met an event which its rules do not foresee.
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
    /// What follows from an event.
    pub(crate) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        match self {
            Phase::Resolving(phase) => phase.on_event(event, context),
            Phase::Stepping(phase) => phase.on_event(event, context),
            Phase::Asking(phase) => phase.on_event(event, context),
            Phase::Acting(phase) => phase.on_event(event, context),
            Phase::Publishing(phase) => phase.on_event(event, context),
            Phase::Deciding(phase) => phase.on_event(event, context),
        }
    }

    /// Whether something is on its way that changes something outside. It is waited for as long as it may take: the lease
    /// is not given up before, because whoever holds it next takes for granted that nothing of the last holder comes after
    /// it.
    pub(crate) fn has_effect_in_flight(&self) -> bool {
        match self {
            Phase::Acting(phase) => phase.has_effect_in_flight(),
            Phase::Publishing(phase) => phase.has_effect_in_flight(),
            Phase::Resolving(_) | Phase::Stepping(_) | Phase::Asking(_) | Phase::Deciding(_) => false,
        }
    }

    /// What the phase waits for.
    pub(crate) fn awaited(&self) -> Awaited<'_> {
        match self {
            Phase::Asking(phase) => phase.awaited(),
            Phase::Acting(phase) if phase.is_waiting() => Awaited::Gate,
            Phase::Publishing(phase) if phase.is_waiting() => Awaited::Gate,
            _ => Awaited::Call,
        }
    }

    /// Ends a pass in the middle: the lease is lost, or there is no time left.
    pub(crate) fn interrupt(self, outcome: Outcome, frame: &Frame, work: &mut Work) -> Finished {
        match self {
            Phase::Deciding(phase) => return phase.interrupt(),
            Phase::Stepping(phase) => phase.leave(frame, work),
            Phase::Asking(phase) => phase.leave(frame, work),
            Phase::Acting(phase) => phase.leave(frame, work),
            Phase::Resolving(_) | Phase::Publishing(_) => {}
        }
        Finished::plain(outcome)
    }

    /// What the phase is called.
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
    /// An event that fits no row of this phase.
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

    /// Whether a write of the primary met another version than this pass knows, or may have: on the version that it knows
    /// none will be taken any more.
    fn is_behind(&self) -> bool {
        self.work.behind.is_some() && self.is_guarded(Guard::StaleKeysReadFirst)
    }

    fn report(&mut self, report: Report) {
        self.commands.push(Command::Report(report));
    }

    /// What a policy is answered whose request is refused. The binding is told of what it does not grant.
    fn refuses(&mut self, refusal: Refusal) -> Failure {
        if let Refusal::Ungranted(ungranted) = &refusal {
            self.report(Report::Ungranted(ungranted.clone()));
        }
        refusal.into()
    }

    /// Asks something, as soon as there is room.
    fn call(&mut self, slot: usize, call: Call, longest: Duration) {
        self.command(Command::Call { slot, call, longest });
    }

    /// Changes something outside, if that ends while the lease is held. Says what it waits for else, or how the pass ends.
    fn change(&mut self, slot: usize, call: Call, longest: Duration) -> Result<Gate, Outcome> {
        let View {
            now, lease, guards, ..
        } = self.view;
        if self.view.cutting {
            return Err(Outcome::Stopped);
        }
        if guards.stand(Guard::Fencing) && !lease.covers(now, longest) {
            if !lease.is_held(now) {
                return Err(Outcome::LeaseLost);
            }
            self.command(Command::AwaitLease);
            return Ok(Gate::Waiting);
        }
        let Frame {
            id,
            tenant_queue,
            binding,
            ..
        } = self.frame;
        if let Some(room) = room_of(&call, &binding.name)
            && !self.view.rooms.has_place(&room, tenant_queue, binding, *id)
        {
            self.command(Command::AwaitRoom(room));
            return Ok(Gate::Waiting);
        }
        self.call(slot, call, longest);
        Ok(Gate::Sent)
    }
}
