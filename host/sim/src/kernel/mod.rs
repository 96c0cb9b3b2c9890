//! The kernel of a simulation: time, chance, faults, tasks, calls, and what is stored.
//!
//! It knows what all services have in common: callers, their accounts, and the longest time of a call. It knows no service
//! and no thing of one. Its user provides two types: events (`E`), which the kernel keeps
//! until they are due or passes to all listeners, and quirks (`Q`), which are faults that it passes unread to
//! the service that performs the call.
//!
//! # Flow
//!
//! A call passes [`Kernel::admit`], which checks for an outage and for a fault. A service performs it. The
//! answer leaves by [`Kernel::deliver`], where it takes time or is lost. What a service schedules comes back
//! when it is due ([`Kernel::take_due`]). What it announces is passed to all services before anything else
//! happens.

pub(crate) mod between;
pub(crate) mod call;
pub(crate) mod clock;
pub(crate) mod cues;
pub(crate) mod draw;
pub(crate) mod due;
pub(crate) mod envelope;
pub(crate) mod faults;
pub(crate) mod kept;
pub(crate) mod tasks;

use std::collections::{BTreeSet, VecDeque};

use serde::Serialize;
use serde::de::DeserializeOwned;

use between::Between;
use clock::Head;
use cues::Cue;
use due::Due;
use faults::{Outage, Rule};
use kept::{Note, Table};
use tasks::Task;

/// How calls and tasks behave, whatever they are for.
#[derive(Clone, Debug)]
pub(crate) struct Settings<Q> {
    /// How long an answer takes.
    pub(crate) answers: Between,
    /// How long a task waits before it runs.
    pub(crate) queue: Between,
    /// How far a look may lag behind the writes, in milliseconds.
    pub(crate) lag: u64,
    /// How long the record of an ended task is kept, in milliseconds.
    pub(crate) retention: u64,
    /// Whether a create with the key of an earlier one is the same create.
    pub(crate) client_tokens: bool,
    pub(crate) outages: Vec<Outage>,
    /// The fault rules. The first that fires decides.
    pub(crate) rules: Vec<Rule<Q>>,
    pub(crate) cues: Vec<Cue>,
    /// The names of the arguments whose values must not be stored.
    pub(crate) sealed: BTreeSet<String>,
}

/// The name of the table of scheduled things.
pub(crate) const DUE: &str = "due";

/// See the documentation of the module.
pub(crate) struct Kernel<E, Q> {
    settings: Settings<Q>,
    head: Head,
    /// Scheduled things, by their time and number.
    due: Table<(u64, u64), Due<E>>,
    /// How many numbers each owner has drawn.
    draws: Table<String, u64>,
    /// How often each rule has matched, for each owner separately if the rule says so.
    matched: Table<String, u64>,
    tasks: Table<u64, Task>,
    /// The tasks of each owner.
    owned: Table<String, BTreeSet<u64>>,
    /// Events that were announced and not yet passed on. Empty between two calls.
    announced: VecDeque<E>,
    /// Whether something changed that must survive a restart.
    dirty: bool,
}

impl<E, Q> Kernel<E, Q>
where
    E: Serialize + DeserializeOwned,
{
    /// A kernel whose time begins now.
    pub(crate) fn new(settings: Settings<Q>, seed: u64, now: u64) -> Self {
        let mut kernel = Self::with_head(settings, Head::new(seed, now));
        kernel.expect_cues();
        kernel
    }

    /// A kernel at this point of its time, without other state. That is then restored into its
    /// [tables](Kernel::tables).
    pub(crate) fn with_head(settings: Settings<Q>, head: Head) -> Self {
        Kernel {
            settings,
            head,
            due: Table::default(),
            draws: Table::default(),
            matched: Table::default(),
            tasks: Table::default(),
            owned: Table::default(),
            announced: VecDeque::new(),
            dirty: false,
        }
    }

    /// Every table, and the name that it is stored under.
    pub(crate) fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![
            (DUE, &mut self.due),
            ("draws", &mut self.draws),
            ("matched", &mut self.matched),
            ("tasks", &mut self.tasks),
            ("task owners", &mut self.owned),
        ]
    }

    /// The state that is stored once, beside the tables.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// How calls and tasks behave.
    pub(crate) fn settings(&self) -> &Settings<Q> {
        &self.settings
    }

    /// Something happened that must survive a restart.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// Whether something happened since the last call that must survive a restart.
    pub(crate) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }
}

#[cfg(test)]
mod tests;
