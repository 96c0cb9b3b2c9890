//! The interface between the host and a cloud.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use polity_core::call::{CloudRequest, Commit, PendingEntry, Preparation, Session, Site};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Answer, Code, Document, Failure, Resolution};

use crate::catalogue::LARGEST_SEALED;
use crate::session::{Opened, SessionRequest};

/// A boxed future, so that clouds can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A cloud.
///
/// # Guarantees
///
/// - A request is performed at most once. Nothing is retried.
/// - Reads, [`Cloud::prepare`] and [`Cloud::resolve`] change nothing.
/// - [`Resolution::Absent`] is a promise that the effect does not exist and will not appear. It needs a
///   successful look later than `since` plus the operation's `visible_within`. In every other case the answer
///   is [`Resolution::Unknown`].
/// - `not-found` is an answer of the cloud, never a failure to ask it.
pub trait Cloud: Send + Sync {
    /// The operations that the cloud performs.
    fn catalogue(&self) -> &Arc<Catalogue>;

    /// The most bytes of a sealed value that the cloud takes.
    fn largest_sealed(&self) -> usize {
        LARGEST_SEALED
    }

    /// Performs a read or a change once. The caller cuts it at the operation's longest duration.
    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer>;

    /// [`Cloud::perform`] for a request that the host has had for this long. A cloud that refuses to begin a change late
    /// counts this time.
    fn perform_after(&self, request: CloudRequest, waited: Duration) -> BoxFuture<'_, Answer> {
        let _ = waited;
        self.perform(request)
    }

    /// Reads everything that a create needs, and changes nothing. After a failure, nothing is created.
    fn prepare(&self, request: CloudRequest) -> BoxFuture<'_, Result<Preparation, Failure>> {
        failed(creates_nothing(&request.operation))
    }

    /// Sends the one request of a create, once, with the result of `prepare`.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Answer> {
        failed(creates_nothing(&commit.request.operation))
    }

    /// [`Cloud::commit`] for a create that the host has had for this long. A cloud that refuses to begin a create late counts
    /// this time.
    fn commit_after(&self, commit: Commit, waited: Duration) -> BoxFuture<'_, Answer> {
        let _ = waited;
        self.commit(commit)
    }

    /// The place of this session's server, as the cloud names it, and the principal of the session. A look in another
    /// place, or by another principal, may not see the created object.
    fn site<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Site, Failure>> {
        let _ = session;
        failed(Failure::new(Code::Unimplemented, "this cloud creates nothing"))
    }

    /// Finds out the result of a create whose answer was lost.
    fn resolve<'a>(&'a self, session: &'a Session, entry: &'a PendingEntry) -> BoxFuture<'a, Resolution>;

    /// Opens a session. An adapter with sessions of its own implements this. Its requests then carry
    /// [`Opened::token`] as their handle. The adapter keeps no sessions; [`Gateway`](crate::Gateway) does.
    fn open_session<'a>(&'a self, request: &'a SessionRequest) -> BoxFuture<'a, Result<Opened, Failure>> {
        let _ = request;
        failed(no_credentials())
    }

    /// Whether the cloud logs in with the tokens of service accounts that a plan names.
    fn takes_tokens(&self) -> bool {
        false
    }

    /// Ends a session of [`Cloud::open_session`] that no caller uses any more. A server may limit the number of sessions.
    /// The call returns at once: whoever finds out that a session is no longer used waits for no server.
    fn close_session(&self, token: &str) {
        let _ = token;
    }

    /// Opens or reuses a session: `{handle, reused, attributes}`. The handle is valid for this owner only.
    /// [`Gateway`](crate::Gateway) implements it for every adapter.
    fn credential<'a>(&'a self, plan: &'a Document, owner: &'a str) -> BoxFuture<'a, Answer> {
        let _ = (plan, owner);
        failed(no_credentials())
    }

    /// The adapter itself, for callers that know its type and need more than operations: a simulation can
    /// list its VMs.
    fn adapter(&self) -> Option<&dyn Any> {
        None
    }
}

fn creates_nothing(operation: &str) -> Failure {
    let message = format!("{operation}: this cloud creates nothing");
    Failure::new(Code::Unimplemented, message)
}

/// The failure of a cloud without credentials.
pub(crate) fn no_credentials() -> Failure {
    Failure::new(Code::Unimplemented, "this cloud has no credentials of its own")
}

fn failed<T: Send + 'static>(failure: Failure) -> BoxFuture<'static, Result<T, Failure>> {
    Box::pin(std::future::ready(Err(failure)))
}
