//! Logouts. Each runs in a task of its own, so that no operation waits until a server has ended a session of others.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long the host waits for a server to end a session. After that, the server ends it when it is idle.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);
/// The most logouts at the same time. Many sessions may end together, and a server that is slow gets no more of these
/// requests at once.
const AT_ONCE: usize = 4;

/// The logouts of one cloud.
pub(crate) struct Logouts(Arc<Semaphore>);

impl Default for Logouts {
    fn default() -> Self {
        Logouts(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Logouts {
    /// Begins a logout and returns at once.
    pub(crate) fn begin(&self, logout: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime the process is ending.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let turns = self.0.clone();
        runtime.spawn(async move {
            let _turn = turns.acquire().await;
            let _ = timeout(LONGEST, logout).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_holds_up_no_caller_and_no_logout_for_ever() {
        let (logouts, begun) = (Logouts::default(), Arc::new(AtomicUsize::new(0)));
        let before = Instant::now();
        for _ in 0..=AT_ONCE {
            let begun = begun.clone();
            logouts.begin(async move {
                begun.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            });
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
        sleep(LONGEST / 2).await;
        assert_eq!(begun.load(Ordering::Relaxed), AT_ONCE);
        sleep(LONGEST).await;
        assert_eq!(begun.load(Ordering::Relaxed), AT_ONCE + 1);
    }

    #[test]
    fn without_a_runtime_nothing_is_begun() {
        Logouts::default().begin(std::future::ready(()));
    }
}
