//! The state that a pass collects while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::frame::Dependencies;
use crate::call::{PendingEntry, Scope};
use crate::contract::{Conclusion, Entry, ObjectRef, Question, Request, Resolution};
use crate::merge::{Edits, Part};
use crate::object::{Object, ResourceVersion};
use crate::record::{RoleRecord, WriteRecord};
use crate::shared::locks::LockAnswer;
use crate::time::Boot;
use crate::worker::LastWrite;

/// The state that a pass collects while it runs.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The primary as this pass knows it: the snapshot, changed by the pass's own writes.
    pub(crate) current: Option<Object>,
    /// The handle that the identity policy granted.
    pub(crate) handle: Option<String>,
    /// The roles that have ended.
    pub(crate) roles: Vec<RoleRecord>,
    /// The bytes that the journals of these roles hold.
    pub(crate) held: u64,
    /// The conclusion of the identity policy. It is published together with the conclusion of the lifecycle policy.
    pub(crate) judged: Option<CheckedConclusion>,
    pub(crate) dependencies: Dependencies,
    /// The scopes that the pass asked for or has answers from, whether it used the answers or not.
    pub(crate) looked_at: BTreeSet<Scope>,
    /// The scopes of answers that are new since the last event of the pass. The controller takes them after each event.
    pub(crate) answered: BTreeSet<Scope>,
    /// The scopes with a change that was not compared with the answers of the pass, because they are too many.
    pub(crate) dirty: BTreeSet<Scope>,
    /// The last object among those that the pass used which another writer changed since.
    pub(crate) changed_by: Option<ObjectRef>,
    /// The locks that the pass asked for.
    pub(crate) locks: BTreeSet<String>,
    pub(crate) writes: Vec<WriteRecord>,
    /// The version of the primary on which a write failed or had an unknown result, if the pass has not read the
    /// primary since.
    pub(crate) behind: Option<ResourceVersion>,
    /// Whether this pass may have changed anything outside its primary.
    pub(crate) acted: bool,
    /// The entries that stood in `status.pending` when the pass began, in their order.
    pub(crate) found: Vec<KnownEntry>,
    /// The entries that this pass wrote.
    pub(crate) entered: Vec<KnownEntry>,
    /// Why this host cannot read an element of `status.pending`, if there is such an element.
    pub(crate) unreadable: Option<String>,
    /// What this process knows of each entry, by the key of the entry. It is handed back to the key of the pass
    /// whenever the pass ends.
    pub(crate) histories: BTreeMap<String, EntryHistory>,
    /// What was written last of each part. It is handed back to the key of the pass, too.
    pub(crate) written: BTreeMap<Part, LastWrite>,
}

/// A create that was or may have been performed.
#[derive(Clone, Debug)]
pub(crate) struct KnownEntry {
    pub(crate) entry: PendingEntry,
    pub(crate) fate: Fate,
}

/// The outcome of a create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// Not known yet.
    Open,
    /// The cloud answered: when the pass asked for the outcome, or the act itself, which was performed.
    Resolved(Resolution),
    /// The act was answered and changed nothing.
    Refused,
    /// The act never left this host.
    NeverSent,
}

impl Fate {
    /// Whether the outcome is known, so that the entry may be removed.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Fate::Open | Fate::Resolved(Resolution::Unknown(_)))
    }
}

/// What happened to a pending entry, as far as this process saw it. Another process did not, and must ask the cloud.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryHistory {
    /// When this process saw the entry first.
    pub(super) first_seen: Boot,
    /// How long other processes had known of the entry by then.
    pub(super) waited_before: Duration,
    /// Whether this process wrote the entry.
    pub(crate) written_here: bool,
    /// Whether this process sent the create that the entry announces.
    pub(crate) sent: bool,
}

/// A conclusion that keeps the contract.
#[derive(Debug)]
pub(crate) struct CheckedConclusion {
    pub(super) conclusion: Conclusion,
    /// What it changes of the object; `None` if the object is absent.
    pub(super) edits: Option<Edits>,
}

impl EntryHistory {
    /// An entry that another process, or an earlier pass of this one, wrote.
    pub(super) fn seen(now: Boot, waited_before: Duration) -> Self {
        EntryHistory {
            first_seen: now,
            waited_before,
            written_here: false,
            sent: false,
        }
    }

    /// An entry that this process writes.
    pub(super) fn written(now: Boot) -> Self {
        EntryHistory {
            written_here: true,
            ..EntryHistory::seen(now, Duration::ZERO)
        }
    }

    /// How long hosts have known of the entry.
    pub(super) fn waited(self, now: Boot) -> Duration {
        (now - self.first_seen).saturating_add(self.waited_before)
    }

    /// Whether the announced create was certainly never sent. That is certain only for entries of this process:
    /// another process, or this host before a crash, may have sent the creates of all others.
    pub(super) fn never_sent(self) -> bool {
        self.written_here && !self.sent
    }
}

impl Work {
    /// Whether the outcome of an entry is known.
    pub(super) fn is_resolved(&self, entry: &PendingEntry) -> bool {
        let mut entries = self.found.iter().chain(&self.entered);
        entries.any(|known| known.entry.key == entry.key && known.fate.is_known())
    }

    /// The entries that the pass found and whose outcome is still unknown.
    pub(super) fn in_doubt(&self) -> impl Iterator<Item = &PendingEntry> {
        let open = self.found.iter().filter(|found| !found.fate.is_known());
        open.map(|found| &found.entry)
    }

    /// Whether the pass found an entry whose create happened or may have happened.
    pub(super) fn was_in_doubt(&self) -> bool {
        let absent =
            |entry: &KnownEntry| matches!(entry.fate, Fate::NeverSent | Fate::Resolved(Resolution::Absent));
        self.unreadable.is_some() || !self.found.iter().all(absent)
    }

    /// The locks that were busy, in the order in which the roles asked for them.
    pub(crate) fn busy_locks(&self) -> Vec<String> {
        let journal = self.roles.iter().flat_map(|role| &role.journal);
        let busy = |entry: &Entry| match (&entry.request, &entry.answer) {
            (Request::Ask(ask), Ok(answer)) if &**answer == LockAnswer::Busy.json() => match &ask.question {
                Question::Lock(name) => Some(name.clone()),
                _ => None,
            },
            _ => None,
        };
        journal.filter_map(busy).collect()
    }

    /// Stores the outcome of an entry that this pass wrote.
    pub(super) fn resolve_entered(&mut self, key: &str, fate: Fate) {
        if let Some(entry) = self.entered.iter_mut().find(|entry| entry.entry.key == key) {
            entry.fate = fate;
        }
    }
}
