//! What a handler of a pass works with, and the commands that it leaves.

use std::time::Duration;

use super::frame::Frame;
use super::work::Work;
use crate::call::{Call, Scope};
use crate::contract::{Failure, ObjectRef};
use crate::fault::Fault;
use crate::grants::{MissingGrant, Refusal};
use crate::object::Object;
use crate::render::RoleQuestion;
use crate::shared::Shared;
use crate::shared::cache::Change;
use crate::shared::guards::Guard;
use crate::shared::terms::Terms;

/// The state that a handler works with.
pub(crate) struct Context<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) work: &'a mut Work,
    /// What all passes share, to be read.
    pub(crate) view: &'a Shared,
    pub(crate) commands: Vec<Command>,
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
        answers: Option<RoleQuestion>,
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
    Ungranted(MissingGrant),
    /// The API server did not keep the value at this path.
    NotKept(String),
    /// The wait that a retry policy asked for was changed to fit the limits.
    Clamped(String),
}

impl Context<'_> {
    pub(super) fn is_guarded(&self, guard: Guard) -> bool {
        self.view.guards.stand(guard)
    }

    pub(super) fn command(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Whether the API server may hold another version of the primary than this pass knows. In that case every write
    /// with the known version would fail.
    pub(super) fn is_behind(&self) -> bool {
        self.work.behind.is_some() && self.is_guarded(Guard::StaleKeysReadFirst)
    }

    pub(super) fn report(&mut self, report: Report) {
        self.commands.push(Command::Report(report));
    }

    /// The failure that a policy gets for a refused request. A missing grant is also reported on the binding.
    pub(super) fn refuses(&mut self, refusal: Refusal) -> Failure {
        if let Refusal::Ungranted(ungranted) = &refusal {
            self.report(Report::Ungranted(ungranted.clone()));
        }
        refusal.into()
    }

    /// Makes a call that changes nothing outside, as soon as its capacity has a place.
    pub(super) fn call(&mut self, slot: usize, call: Call, longest: Duration) {
        self.command(Command::Call {
            slot,
            call,
            longest: Some(longest),
            terms: None,
        });
    }

    /// Has a worker do something.
    pub(super) fn work(&mut self, call: Call) {
        self.command(Command::Call {
            slot: 0,
            call,
            longest: None,
            terms: None,
        });
    }

    /// Makes a call that changes something outside, on these terms. A phase asks for one such call at a time.
    pub(super) fn change(&mut self, slot: usize, call: Call, longest: Duration, terms: Terms) {
        self.command(Command::Call {
            slot,
            call,
            longest: Some(longest),
            terms: Some(terms),
        });
    }
}
