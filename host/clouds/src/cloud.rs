//! What the host sees of a cloud.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use polity_core::call::{CloudRequest, Commit, PendingEntry, Prepared, Session, Site};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Answer, Code, Document, Failure, Resolution};

use crate::session::{Opened, SessionRequest};

/// A boxed future, so that clouds can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A cloud.
///
/// # Guarantees
///
/// - A request is performed at most once. Nothing is retried.
/// - Reads, [`Cloud::prepare`] and [`Cloud::resolve`] change nothing.
/// - [`Resolution::Absent`] is a promise that the effect is not there and will not appear. It rests on a successful look
///   later than `since` plus the operation's `visible_within`; whatever else stands in the way is [`Resolution::Unknown`].
/// - `not-found` is what the cloud said, never a failure to ask it.
pub trait Cloud: Send + Sync {
    /// What it can do.
    fn catalogue(&self) -> &Arc<Catalogue>;

    /// Performs a read or a change once. The caller cuts it at the operation's longest duration.
    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer>;

    /// Reads all that a create needs, and changes nothing. A failure says that nothing will come of it.
    fn prepare(&self, request: CloudRequest) -> BoxFuture<'_, Result<Prepared, Failure>> {
        failed(creates_nothing(&request.operation))
    }

    /// Sends the one request of a create, with what was prepared of it, once.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Answer> {
        failed(creates_nothing(&commit.request.operation))
    }

    /// Where this session's server stands, in its own words, and as whom it is talked to. What is created somewhere else,
    /// or by somebody else, may not be seen by it.
    fn site<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Site, Failure>> {
        let _ = session;
        failed(Failure::new(Code::Unimplemented, "this cloud creates nothing"))
    }

    /// What came of a create whose answer was lost.
    fn resolve<'a>(&'a self, session: &'a Session, entry: &'a PendingEntry) -> BoxFuture<'a, Resolution>;

    /// Opens a session: who it is from then on. An adapter with sessions of its own implements this; its requests then
    /// carry [`Opened::token`] as their handle. Nothing is kept here: [`Gateway`](crate::Gateway) does that.
    fn open_session<'a>(&'a self, request: &'a SessionRequest) -> BoxFuture<'a, Result<Opened, Failure>> {
        let _ = request;
        failed(no_credentials())
    }

    /// Builds or fetches a session: `{handle, reused, attributes}`. The handle is valid for this owner only.
    /// [`Gateway`](crate::Gateway) implements it, for every adapter.
    fn credential<'a>(&'a self, plan: &'a Document, owner: &'a str) -> BoxFuture<'a, Answer> {
        let _ = (plan, owner);
        failed(no_credentials())
    }

    /// The adapter itself, for whoever knows its type and asks for what is no operation of a cloud: a simulation tells
    /// which VMs there are.
    fn adapter(&self) -> Option<&dyn Any> {
        None
    }
}

fn creates_nothing(operation: &str) -> Failure {
    let message = format!("{operation}: this cloud creates nothing");
    Failure::new(Code::Unimplemented, message)
}

/// What is said of credentials where there are none.
pub(crate) fn no_credentials() -> Failure {
    Failure::new(Code::Unimplemented, "this cloud has no credentials of its own")
}

fn failed<T: Send + 'static>(failure: Failure) -> BoxFuture<'static, Result<T, Failure>> {
    Box::pin(std::future::ready(Err(failure)))
}
