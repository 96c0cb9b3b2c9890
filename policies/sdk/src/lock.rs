//! Locks: mutual exclusion between the passes of one binding and tenant.

use crate::cluster::{ObjectAsk, ObjectsAsk};
use crate::{Asking, Context, Kind};

/// A lock that this pass holds until it is published. Ask through it for the objects that it protects: these
/// asks read from the API server, because a cache may not yet show what the last holder wrote.
#[derive(Clone)]
#[must_use = "what a lock protects is asked for through it"]
pub struct Lock<T: Kind, C> {
    cx: Context<T, C>,
}

impl<T: Kind, C> Lock<T, C> {
    pub(crate) fn of(cx: Context<T, C>) -> Self {
        Lock { cx }
    }

    /// Asks for one object, read from the API server.
    pub fn object<K: Kind>(&self, ask: ObjectAsk<K>) -> Asking<ObjectAsk<K>> {
        self.cx.ask(ask.latest())
    }

    /// Asks for objects, read from the API server.
    pub fn objects<K: Kind>(&self, ask: ObjectsAsk<K>) -> Asking<ObjectsAsk<K>> {
        self.cx.ask(ask.latest())
    }
}
