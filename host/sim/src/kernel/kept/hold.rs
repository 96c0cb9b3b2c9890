//! Keeps the clock of the runtime from jumping while changes are being stored.
//!
//! A clock that jumps goes to the next timeout as soon as all tasks wait, and a task that waits for the disk looks like any
//! other. Each sync would then cost the calls under way their time limits. The runtime does not let its clock jump while a
//! thread for blocking work is busy, so one is busy as long as a caller waits for the disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

/// Holds the clock from the first batch that is handed in until the callers of all batches were told the result.
#[derive(Clone, Default)]
pub(super) struct Hold(Arc<Shared>);

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// The number of the last batch that was handed in.
    handed_in: u64,
    /// The number of the last batch whose caller was told the result.
    told: u64,
    /// Whether a thread holds the clock.
    is_held: bool,
}

impl Hold {
    /// A batch is about to be handed in.
    pub(super) fn begin(&self, nth: u64) {
        {
            let mut progress = self.0.lock();
            progress.handed_in = nth;
            if progress.is_held {
                return;
            }
        }
        // Without a runtime there is no clock that could jump.
        if let Ok(runtime) = Handle::try_current() {
            self.0.lock().is_held = true;
            let shared = self.0.clone();
            runtime.spawn_blocking(move || shared.wait());
        }
    }

    /// The callers of all batches up to this one were told the result.
    pub(super) fn end(&self, nth: u64) {
        self.0.lock().told = nth;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let progress = self.lock();
        let is_busy = |progress: &mut Progress| progress.told < progress.handed_in;
        let ended = self.changed.wait_while(progress, is_busy);
        ended.unwrap_or_else(PoisonError::into_inner).is_held = false;
    }
}
