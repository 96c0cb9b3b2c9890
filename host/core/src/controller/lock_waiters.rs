//! Keys that wait for locks.

use super::Controller;
use super::keys::KeyState;
use crate::contract::Cause;
use crate::key::{Key, PassId};
use crate::shared::locks::Lock;

impl Controller {
    /// Releases all locks of a pass and enqueues the first waiting key of each.
    pub(super) fn unlock(&mut self, pass: PassId) {
        let free = self.shared.locks.release(pass);
        self.enqueue_waiters(&free);
    }

    /// Makes a key whose pass ended wait for the locks that the pass found busy. A lock may have been released before
    /// the pass ended, so free locks are checked at once. A key that was forgotten meanwhile does not wait.
    pub(super) fn wait_for_locks(&mut self, key: &Key, busy: Vec<String>) {
        if let Some(state) = self.keys.states.get_mut(key) {
            let concerned = self.shared.locks.wait(key, &state.tenant, &state.busy, &busy);
            state.busy = busy;
            self.enqueue_waiters(&concerned);
        }
    }

    /// Removes a forgotten key from the queues of its locks, so that it does not block the keys behind it.
    pub(super) fn leave_lock_queues(&mut self, key: &Key, gone: &KeyState) {
        let concerned = self.shared.locks.wait(key, &gone.tenant, &gone.busy, &[]);
        self.enqueue_waiters(&concerned);
    }

    fn enqueue_waiters(&mut self, locks: &[Lock]) {
        for lock in locks {
            if let Some(key) = self.shared.locks.next(lock).cloned() {
                self.enqueue(&key, Cause::Lock(lock.2.clone()));
            }
        }
    }
}
