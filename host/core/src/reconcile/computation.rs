//! What a pass makes of objects that may be large: edits that are checked, the writes of a publication. Computations are pure, so a thread of the host can do them while other passes go on.

use super::Context;
use super::checking::Check;
use super::looking::THREAD_LONGEST;
use super::publishing::{Draft, Drafted};
use crate::call::Call;
use crate::contract::{Code, Failure};
use crate::merge::Edits;

/// The cost of a byte that is read, in fuel: it becomes a tree that is copied, compared and dropped.
const PER_BYTE: u64 = 32;

/// A computation about objects that may be large.
#[derive(Clone, Debug, PartialEq)]
pub struct Computation(What);

#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is moved once"
)]
enum What {
    Check(Check),
    Draft(Draft),
}

/// The result of a [`Computation`].
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    pub(super) result: ComputedResult,
    cost: u64,
}

/// What was computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ComputedResult {
    /// The edits of a conclusion; `None` if the object is absent. Or what is wrong with them.
    Checked(Result<Option<Edits>, String>),
    /// The writes of a publication.
    Drafted(Drafted),
    /// The host failed.
    Failed(Failure),
}

impl From<Check> for Computation {
    fn from(check: Check) -> Self {
        Computation(What::Check(check))
    }
}

impl From<Draft> for Computation {
    fn from(draft: Draft) -> Self {
        Computation(What::Draft(draft))
    }
}

impl Computation {
    /// The bytes of text that are read.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.0 {
            What::Check(check) => check.bytes(),
            What::Draft(draft) => draft.bytes(),
        }
    }

    /// The cost at the threads, in fuel.
    pub(crate) fn cost(&self) -> u64 {
        self.bytes().saturating_mul(PER_BYTE)
    }

    /// Computes, in a thread.
    pub fn run(&self) -> Computed {
        let result = match self.compute() {
            ComputedResult::Checked(Ok(Some(edits))) => {
                ComputedResult::Checked(Ok(Some(edits.without_tree())))
            }
            result => result,
        };
        let cost = self.cost();
        Computed { result, cost }
    }

    fn compute(&self) -> ComputedResult {
        match &self.0 {
            What::Check(check) => ComputedResult::Checked(check.run()),
            What::Draft(draft) => ComputedResult::Drafted(draft.run()),
        }
    }
}

impl Computed {
    /// A computation that the host could not do.
    pub fn failed(why: Failure) -> Self {
        Computed {
            result: ComputedResult::Failed(why),
            cost: 0,
        }
    }

    /// The cost at the threads, in fuel.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }
}

/// The failure of a computation that took too long.
pub(super) fn not_computed() -> Failure {
    Failure::new(
        Code::DeadlineExceeded,
        "no thread of this host had time for a large object",
    )
}

impl Context<'_> {
    /// Computes at once, or calls a thread if much text is read. The reply goes to this slot.
    pub(super) fn compute(
        &mut self,
        slot: usize,
        computation: impl Into<Computation>,
    ) -> Option<ComputedResult> {
        let computation = computation.into();
        if self.view.rooms.is_small(&computation) {
            return Some(computation.compute());
        }
        self.call(slot, Call::Compute(Box::new(computation)), THREAD_LONGEST);
        None
    }
}
