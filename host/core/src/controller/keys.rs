//! What is remembered of a key between passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::contract::{Cause, Event, Trial};
use crate::key::{Key, PassId};
use crate::object::Object;
use crate::path::Digest;
use crate::plan::Part;
use crate::reconcile::{Known, LastPass};

use super::Controller;
use super::rate_limit::Bucket;

/// What is remembered of a key between passes.
#[derive(Debug)]
pub(super) struct KeyState {
    pub(super) tenant: Arc<str>,
    /// The fair-queueing group of this key: its binding and tenant.
    pub(super) line: Arc<str>,
    pub(super) running: Option<PassId>,
    pub(super) causes: BTreeSet<Cause>,
    pub(super) waiting: Waiting,
    /// The primary as the last pass saw or wrote it.
    pub(super) seen: Option<Object>,
    pub(super) last: LastPass,
    pub(super) attempt: u32,
    pub(super) faults: u32,
    pub(super) bucket: Bucket,
    pub(super) slowed: bool,
    /// What this host knows of each pending entry, by its key.
    pub(super) known: BTreeMap<String, Known>,
    /// Of each part of the last publication what the API server did not keep.
    pub(super) futile: BTreeMap<Part, Digest>,
    /// The outcome that the retry policy was asked about, and when.
    pub(super) trial: Option<(u64, Box<Trial>)>,
    pub(super) events: Vec<Event>,
}

/// What ends a key's wait before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Any change of what its last pass saw.
    ForAnyChange,
    /// A change of the primary's generation, deletion, or requests.
    ForSomethingNew,
}

/// A key as the host shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// A pass of it is in flight.
    pub running: bool,
    /// It waits for its turn.
    pub queued: bool,
    /// Boot milliseconds of its timer.
    pub due: Option<u64>,
    /// Passes in a row that ended in a failure.
    pub attempt: u32,
    /// Faults in a row.
    pub faults: u32,
}

impl KeyState {
    /// A key that no pass has seen; `running` is a pass of its that was under way when it was forgotten.
    pub(super) fn new(tenant: Arc<str>, line: Arc<str>, running: Option<PassId>, bucket: Bucket) -> Self {
        KeyState {
            tenant,
            line,
            running,
            causes: BTreeSet::new(),
            waiting: Waiting::ForAnyChange,
            seen: None,
            last: LastPass::default(),
            attempt: 0,
            faults: 0,
            bucket,
            slowed: false,
            known: BTreeMap::new(),
            futile: BTreeMap::new(),
            trial: None,
            events: Vec::new(),
        }
    }
}

impl Controller {
    /// The keys of a binding: whether each has a pass in flight or a turn coming, and when its timer is due.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, KeyView)> {
        self.keys.iter().map(|(key, state)| {
            let view = KeyView {
                running: state.running.is_some(),
                queued: self.queue.is_queued(key),
                due: self.queue.deadline(key),
                attempt: state.attempt,
                faults: state.faults,
            };
            (key, view)
        })
    }
}
