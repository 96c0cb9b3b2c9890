//! Batches: requests that are awaited together are sent together.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Awaits futures together; the value holds their outputs in the same order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    All(futures
        .into_iter()
        .map(|future| Slot::Waiting(Box::pin(future)))
        .collect())
    .await
}

enum Slot<F: Future> {
    Waiting(Pin<Box<F>>),
    Ready(Option<F::Output>),
}

struct All<F: Future>(Vec<Slot<F>>);

/// The futures are boxed, and the outputs are never pinned.
impl<F: Future> Unpin for All<F> {}

impl<F: Future> Future for All<F> {
    type Output = Vec<F::Output>;

    /// Polls each, ready or not, so that each registers its request.
    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let mut ready = true;
        for slot in &mut self.0 {
            if let Slot::Waiting(future) = slot {
                match future.as_mut().poll(task) {
                    Poll::Ready(output) => *slot = Slot::Ready(Some(output)),
                    Poll::Pending => ready = false,
                }
            }
        }
        if !ready {
            return Poll::Pending;
        }
        let outputs = self.0.iter_mut().filter_map(|slot| match slot {
            Slot::Ready(output) => output.take(),
            Slot::Waiting(_) => None,
        });
        Poll::Ready(outputs.collect())
    }
}
