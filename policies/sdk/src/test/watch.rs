//! What a run of a policy does besides returning a result.
//!
//! Natively every run is watched. The kit collects what it saw in a thread-local, so that neither the policy
//! nor the step needs a parameter for it.

use std::cell::{Cell, RefCell};

use crate::contract;

/// One run of a policy: one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The requests in the order in which they were polled.
    pub(crate) polls: Vec<Poll>,
    /// Requests that were made and dropped while the policy ran, without being awaited.
    pub(crate) dropped: Vec<String>,
    /// Requests that were awaited and still open when the policy ended.
    pub(crate) abandoned: Vec<String>,
}

/// A request when it was awaited, and the journal entry that answered it.
#[derive(Clone, Debug)]
pub(crate) enum Poll {
    Ask(contract::Ask, Option<usize>),
    Act(contract::Act, Option<usize>),
}

#[derive(Default)]
pub(crate) struct Watch {
    seen: RefCell<Seen>,
    /// Whether the policy's future has been polled. What is dropped afterwards is dropped with it.
    over: Cell<bool>,
}

thread_local! {
    static LAST: RefCell<Seen> = RefCell::default();
    static EDITS: RefCell<Option<String>> = RefCell::default();
}

impl Watch {
    pub(crate) fn asked(&self, ask: &contract::Ask, answered: Option<usize>) {
        self.seen
            .borrow_mut()
            .polls
            .push(Poll::Ask(ask.clone(), answered));
    }

    pub(crate) fn acted(&self, act: &contract::Act, answered: Option<usize>) {
        self.seen
            .borrow_mut()
            .polls
            .push(Poll::Act(act.clone(), answered));
    }

    pub(crate) fn dropped(&self, request: String) {
        if !self.over.get() {
            self.seen.borrow_mut().dropped.push(request);
        }
    }

    /// The policy's future was polled; `ready` says whether it has ended.
    pub(crate) fn polled(&self, ready: bool) {
        self.over.set(true);
        let mut seen = self.seen.take();
        if ready {
            seen.abandoned = seen.polls.iter().filter_map(Poll::open).collect();
        }
        LAST.set(seen);
    }

    /// The last run on this thread made acts, with these edits of the object before; or it made none.
    pub(crate) fn edited(patch: Option<String>) {
        EDITS.set(patch);
    }

    /// The edits that the last run on this thread had made before its acts.
    pub(crate) fn edits() -> Option<String> {
        EDITS.take()
    }

    /// What was seen in the last run on this thread.
    pub(crate) fn last() -> Seen {
        LAST.take()
    }
}

impl Poll {
    fn open(&self) -> Option<String> {
        match self {
            Poll::Ask(ask, None) => Some(super::describe(&contract::Request::Ask(ask.clone()))),
            Poll::Act(act, None) => Some(super::describe(&contract::Request::Act(act.clone()))),
            _ => None,
        }
    }
}
