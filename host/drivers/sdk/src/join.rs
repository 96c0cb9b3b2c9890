//! Batches: requests that are awaited together are sent together.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Awaits futures together; the value holds their outputs in the same order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    All(futures
        .into_iter()
        .map(|future| Slot::Waiting(Box::pin(future)))
        .collect())
    .await
}

/// Awaits two futures of different types together.
pub async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|task| {
        // Both are polled, even if one is not ready, so that each registers its request.
        if first.is_none() {
            first = ready(a.as_mut().poll(task));
        }
        if second.is_none() {
            second = ready(b.as_mut().poll(task));
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            unfinished => {
                (first, second) = unfinished;
                Poll::Pending
            }
        }
    })
    .await
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
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

    /// Polls every future, even if one is not ready, so that each registers its request.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::future;
    use std::task::Waker;

    #[test]
    fn both_futures_are_polled_at_once_and_their_outputs_kept() {
        let mut polls = [0, 0];
        let [first, second] = &mut polls;
        let after = |polls: &mut u32, ready_at: u32| {
            *polls += 1;
            if *polls >= ready_at {
                Poll::Ready(ready_at)
            } else {
                Poll::Pending
            }
        };
        {
            let late = poll_fn(|_| after(first, 2));
            let later = poll_fn(|_| after(second, 3));
            let mut both = pin!(join(join(late, later), future::ready("at once")));
            let mut task = Context::from_waker(Waker::noop());
            assert_eq!(both.as_mut().poll(&mut task), Poll::Pending);
            assert_eq!(both.as_mut().poll(&mut task), Poll::Pending);
            assert_eq!(both.as_mut().poll(&mut task), Poll::Ready(((2, 3), "at once")));
        }
        assert_eq!(polls, [2, 3], "each until it is ready, and not after");
    }
}
