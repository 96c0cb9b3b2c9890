//! Reads the primary of a key before its next pass if the cache is known to be behind.
//!
//! A conflict shows that the watch lags. A write that was cut may have been performed without the watch showing it
//! yet. A pass that starts from such a stale cache would meet the same conflict again and again until the watch
//! catches up.

use super::freshness::Freshness;
use super::keys::KeyState;
use super::{Controller, Guard};
use crate::binding::Binding;
use crate::call::{Call, Reply};
use crate::contract::{Code, Failure, ObjectQuery, Question};
use crate::key::Key;
use crate::object::Object;
use crate::reconcile::{CLUSTER_LONGEST, of_read};
use crate::retry::default_wait;
use crate::shared::calls::UnsentCall;
use crate::shared::terms::{Receiver, Refresh};

impl Controller {
    /// Reads the primary of a key if the cached one is stale. Returns whether the pass has to wait for this read.
    pub(super) fn refreshes(&mut self, key: &Key, binding: &Binding, known: &Object) -> bool {
        let is_guarded = self.shared.guards.stand(Guard::StaleKeysReadFirst);
        let Some(state) = self.keys.states.get_mut(key) else {
            return false;
        };
        let stale = state.freshness.stale.filter(|stale| known.version() <= *stale);
        let Some(stale) = stale.filter(|_| is_guarded) else {
            state.freshness = Freshness::default();
            return false;
        };
        if std::mem::replace(&mut state.freshness.reading, true) {
            return true;
        }
        let tenant_queue = state.tenant_queue.clone();
        let object = known.reference();
        let query = ObjectQuery {
            object: object.clone(),
            projection: Vec::new(),
            latest: true,
        };
        let receiver = Receiver::Refresh(Box::new(Refresh {
            key: key.clone(),
            object,
            uid: known.uid().to_owned(),
            stale,
        }));
        let read = UnsentCall {
            call: Call::Read(Question::Object(query)),
            longest: Some(CLUSTER_LONGEST),
            terms: None,
        };
        self.call(receiver, (&tenant_queue, binding), read);
        true
    }

    /// Handles the reply of a read. The pass may start if the API server answered, also with "not found"; a failed
    /// read is tried again when the retry policy says so.
    pub(super) fn on_refreshed(&mut self, asked: &Refresh, reply: Option<Reply>) {
        let Refresh {
            key,
            object,
            uid,
            stale,
        } = asked;
        let waits =
            |state: &&mut Box<KeyState>| state.freshness.reading && state.freshness.stale == Some(*stale);
        // If the watch showed a newer version first, the pass has already started and this reply has no use.
        let Some(state) = self.keys.states.get_mut(key).filter(waits) else {
            return;
        };
        state.freshness.reading = false;
        let failure = match reply {
            Some(Reply::Objects(Ok(found))) => {
                state.freshness = Freshness::default();
                for fresh in found {
                    let changes = self.shared.cache.own_write(&fresh);
                    self.on_changes(&changes);
                }
                return self.start_soon(key);
            }
            Some(Reply::Objects(Err(failure))) => failure,
            _ => Failure::new(Code::DeadlineExceeded, "no answer in time"),
        };
        if failure.code == Code::NotFound {
            state.freshness = Freshness::default();
            let changes = self.shared.cache.own_delete(object, uid);
            self.on_changes(&changes);
            return self.start_soon(key);
        }
        if let Some(binding) = self.shared.bindings.get(&key.binding).cloned() {
            self.wait_for_read(key, uid, failure, &binding);
        }
    }

    /// Asks the retry policy when a failed read is tried again. The host's own wait stands until it answers.
    fn wait_for_read(&mut self, key: &Key, uid: &str, failure: Failure, binding: &Binding) {
        let now = self.shared.now.boot;
        let Some(state) = self.keys.states.get_mut(key) else {
            return;
        };
        let row = state.freshness.failures;
        state.freshness.failures = row.saturating_add(1);
        state.last.failing_since.get_or_insert(now);
        let request = of_read(failure, row, (key, uid, &state.last), binding, now);
        let at = now + default_wait(&request);
        state.retry = Some((now, Box::new(request)));
        self.keys.queue.push_at(at, key.clone());
        self.reschedule_one(binding, key.clone());
    }

    /// Enqueues the key without a new cause: its pass was put off for the read, and the causes of that pass are still
    /// stored.
    fn start_soon(&mut self, key: &Key) {
        if let Some(state) = self.keys.states.get_mut(key) {
            state.queued.get_or_insert(self.shared.now.boot);
            let tenant_queue = state.tenant_queue.clone();
            self.keys.queue.push(&tenant_queue, key.clone());
        }
    }
}
