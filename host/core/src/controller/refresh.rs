//! A key whose cache is known to be behind is read before its next pass.
//!
//! A write that met a conflict says that the watch lags; one that was cut may stand. A pass that begins with what the cache
//! shows would meet the same conflict, again and again until the watch has caught up.

use std::time::Duration;

use super::calls::Target;
use super::keys::KeyState;
use super::{Controller, Guard};
use crate::binding::Binding;
use crate::call::{Call, Reply};
use crate::contract::{Code, Failure, ObjectQuery, ObjectRef, Question};
use crate::key::Key;
use crate::object::{Object, ResourceVersion};
use crate::reconcile::{CLUSTER_LONGEST, Work};
use crate::retry::after_failures;

/// How far the cache of a key is behind.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    /// The version that a write of this host did not find any more, or may have replaced.
    stale: Option<ResourceVersion>,
    /// It is being read.
    reading: bool,
    /// Reads in a row that failed.
    failures: u32,
}

/// A read of an object that is known to be stale.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refresh {
    key: Key,
    object: ObjectRef,
    uid: String,
    stale: ResourceVersion,
}

impl Freshness {
    /// Takes in what the writes of a pass met.
    pub(super) fn note(&mut self, work: &Work) {
        self.stale = work.behind.max(self.stale);
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading
    }
}

impl Controller {
    /// Reads the object of a key first, if what is known of it is stale. Says whether its pass has to wait for that.
    pub(super) fn refreshes(&mut self, key: &Key, binding: &Binding, known: &Object) -> bool {
        let is_guarded = self.guards.stand(Guard::StaleKeysReadFirst);
        let Some(state) = self.keys.get_mut(key) else {
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
        let call = Call::Read(Question::Object(query));
        let target = Target::Refresh(Box::new(Refresh {
            key: key.clone(),
            object,
            uid: known.uid().to_owned(),
            stale,
        }));
        self.call(&tenant_queue, binding, target, call, CLUSTER_LONGEST);
        true
    }

    /// What the API server says of a stale object: its pass may begin, unless nobody can say.
    pub(super) fn refreshed(&mut self, asked: &Refresh, reply: Option<Reply>) {
        let Refresh {
            key,
            object,
            uid,
            stale,
        } = asked;
        let waits =
            |state: &&mut Box<KeyState>| state.freshness.reading && state.freshness.stale == Some(*stale);
        // Where the watch was faster, its pass has begun, or ended since.
        let Some(state) = self.keys.get_mut(key).filter(waits) else {
            return;
        };
        state.freshness.reading = false;
        let failure = match reply {
            Some(Reply::Objects(Ok(found))) => {
                state.freshness = Freshness::default();
                for fresh in found {
                    let changes = self.cache.own_write(&fresh);
                    self.changed(changes, None);
                }
                return self.start_soon(key);
            }
            Some(Reply::Objects(Err(failure))) => failure,
            _ => Failure::new(Code::DeadlineExceeded, "no answer in time"),
        };
        if failure.code == Code::NotFound {
            state.freshness = Freshness::default();
            let changes = self.cache.own_delete(object, uid);
            self.changed(changes, None);
            return self.start_soon(key);
        }
        state.freshness.failures = state.freshness.failures.saturating_add(1);
        let wished = failure.retry_after.map(Duration::from_millis);
        let wait = after_failures(state.freshness.failures, uid, wished);
        let at = self.now.boot + wait;
        self.queue.push_at(at, key.clone());
    }

    /// Its causes still stand: it had its turn when it was found stale.
    fn start_soon(&mut self, key: &Key) {
        if let Some(state) = self.keys.get(key) {
            let tenant_queue = state.tenant_queue.clone();
            self.queue.push(&tenant_queue, key.clone());
        }
    }
}
