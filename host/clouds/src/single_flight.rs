//! Lets one task at a time work on a key. Other tasks with the same key wait.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The keys in work, and the tasks that wait for them.
#[derive(Default)]
pub(crate) struct SingleFlight {
    taken: Mutex<BTreeMap<[u8; 32], Vec<Waker>>>,
}

/// The right to work on a key, until this is dropped.
pub(crate) struct Permit<'a> {
    flight: &'a SingleFlight,
    key: [u8; 32],
}

impl SingleFlight {
    pub(crate) async fn acquire(&self, key: [u8; 32]) -> Permit<'_> {
        poll_fn(|context| {
            let mut taken = self.lock();
            if let Some(waiting) = taken.get_mut(&key) {
                waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            taken.insert(key, Vec::new());
            Poll::Ready(Permit { flight: self, key })
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Vec<Waker>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    /// Wakes all waiting tasks. A single task could have given up meanwhile, and then none would go on.
    fn drop(&mut self) {
        let waiting = self.flight.lock().remove(&self.key);
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn one_at_a_time_and_only_of_the_same() {
        let flight = SingleFlight::default();
        let context = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(first) = flight.acquire([1; 32]).boxed_local().poll_unpin(context) else {
            panic!("no task works on the key")
        };
        let mut second = flight.acquire([1; 32]).boxed_local();
        assert!(second.poll_unpin(context).is_pending());
        assert!(
            flight
                .acquire([2; 32])
                .boxed_local()
                .poll_unpin(context)
                .is_ready()
        );
        drop(first);
        assert!(second.poll_unpin(context).is_ready());
    }

    #[test]
    fn who_gives_up_waiting_holds_nobody_back() {
        let flight = SingleFlight::default();
        let context = &mut Context::from_waker(Waker::noop());
        let first = flight.acquire([1; 32]).now_or_never().unwrap();
        let mut second = flight.acquire([1; 32]).boxed_local();
        let mut third = flight.acquire([1; 32]).boxed_local();
        assert!(second.poll_unpin(context).is_pending() && third.poll_unpin(context).is_pending());
        drop(second);
        drop(first);
        assert!(third.poll_unpin(context).is_ready());
    }
}
