//! Measures polls of calls in debug builds. A task that computes holds up all other tasks of its thread, and no deadline cuts it;
//! work of unknown size belongs to `polity_clouds::offload`.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    static LONGEST: RefCell<(Duration, &'static str)> = const { RefCell::new((Duration::ZERO, "")) };
}

/// The longest poll on this thread since the last call of this function, in time of the processor, and what was polled. Only a
/// debug build measures.
pub fn take_longest() -> (Duration, &'static str) {
    LONGEST.take()
}

/// A future whose polls are measured.
pub struct Measured<F> {
    future: Pin<Box<F>>,
    what: &'static str,
}

impl<F> Measured<F> {
    /// Measures each poll of this future.
    pub fn new(what: &'static str, future: F) -> Self {
        Measured {
            future: Box::pin(future),
            what,
        }
    }
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if !cfg!(debug_assertions) {
            return self.future.as_mut().poll(context);
        }
        let began = now();
        let polled = self.future.as_mut().poll(context);
        let took = now().saturating_sub(began);
        LONGEST.with_borrow_mut(|longest| {
            if took > longest.0 {
                *longest = (took, self.what);
            }
        });
        polled
    }
}

/// The processor time of this thread.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_poll_that_computes_is_seen() {
        let waits = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        Measured::new("waits", waits).await;
        let (waited, _) = take_longest();
        let computes = async {
            let began = now();
            while now().saturating_sub(began) < Duration::from_millis(60) {
                std::hint::black_box(0);
            }
        };
        Measured::new("computes", computes).await;
        let (computed, what) = take_longest();
        assert!(waited < Duration::from_millis(50), "{waited:?}");
        assert!(
            computed >= Duration::from_millis(60) && what == "computes",
            "{computed:?}"
        );
    }
}
