//! Counts the outputs of a host process. A test lets the process crash right after its nth output, or loses the answer
//! to that output.
//!
//! An output is a write to the API server or a call that changes a cloud. It is counted when it has happened, before
//! the process gets the answer.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use futures::poll;
use polity_clouds::{BoxFuture, Cloud};
use polity_core::call::{CloudRequest, Commit, PendingEntry, Preparation, Session, Site};
use polity_core::catalogue::{Catalogue, OperationEffect};
use polity_core::contract::{Answer, Document, Failure, Resolution};
use tokio::task::AbortHandle;

/// The outputs of one process.
#[derive(Clone, Default)]
pub struct Outputs(Arc<Mutex<Fuse>>);

#[derive(Default)]
struct Fuse {
    /// So many there were.
    made: u64,
    /// So many outputs are left to the process; none: any number.
    left: Option<u64>,
    /// So many outputs, and the answer of the last of them is lost.
    answered: Option<u64>,
    process: Option<AbortHandle>,
}

/// What becomes of the answer to an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It arrives.
    Yes,
    /// It is lost on its way.
    No,
}

impl Outputs {
    /// The process whose outputs these are.
    pub fn are_of(&self, process: AbortHandle) {
        self.fuse(|fuse| fuse.process = Some(process));
    }

    /// The process crashes right after so many more outputs; none: it does not.
    pub fn end_after(&self, left: Option<u64>) {
        self.fuse(|fuse| fuse.left = left);
    }

    /// The process never hears what came of the last of so many more outputs.
    pub fn lose_the_answer_of(&self, nth: u64) {
        self.fuse(|fuse| fuse.answered = Some(nth));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.fuse(|fuse| fuse.made)
    }

    /// One more.
    pub fn made(&self) -> Heard {
        self.fuse(|fuse| {
            fuse.made += 1;
            if let Some(left) = &mut fuse.left {
                *left = left.saturating_sub(1);
                if let (0, Some(process)) = (*left, &fuse.process) {
                    process.abort();
                }
            }
            fuse.answered = fuse.answered.map(|left| left.saturating_sub(1));
            if fuse.answered == Some(0) {
                fuse.answered = None;
                return Heard::No;
            }
            Heard::Yes
        })
    }

    /// A cloud whose changes are counted.
    pub fn counted(&self, cloud: Arc<dyn Cloud>) -> Arc<dyn Cloud> {
        let outputs = self.clone();
        Arc::new(Counted { cloud, outputs })
    }

    fn fuse<T>(&self, act: impl FnOnce(&mut Fuse) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A cloud as one process reaches it.
struct Counted {
    cloud: Arc<dyn Cloud>,
    outputs: Outputs,
}

impl Counted {
    async fn count(&self, changes: bool, mut answer: BoxFuture<'_, Answer>) -> Answer {
        // The effect comes first, the answer is on its way from then on.
        let answered = poll!(answer.as_mut());
        if changes && self.outputs.made() == Heard::No {
            // The caller gives up in the end.
            return std::future::pending().await;
        }
        match answered {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => answer.await,
        }
    }
}

impl Cloud for Counted {
    fn catalogue(&self) -> &Arc<Catalogue> {
        self.cloud.catalogue()
    }

    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer> {
        let operation = self.cloud.catalogue().operations.get(&request.operation);
        let changes = operation.is_some_and(|operation| operation.effect != OperationEffect::Read);
        Box::pin(self.count(changes, self.cloud.perform(request)))
    }

    fn prepare(&self, request: CloudRequest) -> BoxFuture<'_, Result<Preparation, Failure>> {
        self.cloud.prepare(request)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Answer> {
        Box::pin(self.count(true, self.cloud.commit(commit)))
    }

    fn site<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Site, Failure>> {
        self.cloud.site(session)
    }

    fn resolve<'a>(&'a self, session: &'a Session, entry: &'a PendingEntry) -> BoxFuture<'a, Resolution> {
        self.cloud.resolve(session, entry)
    }

    fn credential<'a>(&'a self, plan: &'a Document, owner: &'a str) -> BoxFuture<'a, Answer> {
        self.cloud.credential(plan, owner)
    }

    fn adapter(&self) -> Option<&dyn Any> {
        self.cloud.adapter()
    }
}
