//! One call of a driver.

use std::future::Future;
use std::pin::pin;
use std::task::{self, Poll, Waker};

use crate::{Call, Context, Driver, Failure, Finding, Outcome, Task};

/// One step of an operation.
pub fn step<D: Driver>(call: Call) -> Outcome {
    let cx = match Context::new(call) {
        Ok(cx) => cx,
        Err(failure) => return Outcome::Answered(Err(failure)),
    };
    match cx.task() {
        Task::Perform(_) => match run(D::perform(&cx)) {
            Some(answer) => Outcome::Answered(answer.map(|answer| answer.to_string())),
            None => send(&cx),
        },
        Task::Resolve(entry) => match run(D::resolve(&cx, entry)) {
            Some(finding) => Outcome::Resolved(finding),
            None => send(&cx),
        },
    }
}

/// Polls once. Each request without a response is registered then.
fn run<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut task = task::Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut task) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Sends all registered reads. If there are none, sends only the first registered change.
fn send(cx: &Context) -> Outcome {
    let reads = cx.reads.take();
    if !reads.is_empty() {
        return Outcome::Send(reads);
    }
    Outcome::Send(cx.changes.take().into_iter().take(1).collect())
}

impl From<Failure> for Finding {
    /// A look that failed cannot tell the result of a create.
    fn from(failure: Failure) -> Self {
        Finding::CannotTell(failure)
    }
}
