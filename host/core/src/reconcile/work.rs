//! What a pass gathers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::frame::Dependencies;
use crate::call::{Found, PendingEntry, Scope};
use crate::contract::{
    Code, Conclusion, Effect, Entry as JournalEntry, Failure, ObjectRef, Precondition, Question, Request,
    Resolution,
};
use crate::controller::Guard;
use crate::controller::locks::LockAnswer;
use crate::merge::Part;
use crate::object::{Object, ResourceVersion};
use crate::projection::Digest;
use crate::record::{RoleRecord, WritePurpose, WriteRecord};
use crate::time::Boot;

use super::{Command, Context};

/// What a pass gathers.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The primary as this pass knows it: the snapshot with its own writes.
    pub(crate) current: Option<Object>,
    /// What the identity policy granted.
    pub(crate) handle: Option<String>,
    /// The roles that have ended.
    pub(crate) roles: Vec<RoleRecord>,
    /// What the identity concluded, to be published with the rest.
    pub(crate) judged: Option<Concluded>,
    pub(crate) dependencies: Dependencies,
    /// What it looked at, used or not.
    pub(crate) looked_at: BTreeSet<Scope>,
    /// What watches showed meanwhile of what it used, by scope, uid and version: it may be somebody else's.
    pub(crate) shown: BTreeSet<(Scope, String, ResourceVersion)>,
    /// The object that a watch showed last of what it used.
    pub(crate) moved_by: Option<ObjectRef>,
    pub(crate) writes: Vec<WriteRecord>,
    /// The version that a write did not find any more, or may have replaced: nobody has read the primary since.
    pub(crate) behind: Option<ResourceVersion>,
    /// Whether anything may have been changed by this pass outside its primary.
    pub(crate) acted: bool,
    /// The entries that stood in `status.pending` when the pass began, in their order.
    pub(crate) found: Vec<Entry>,
    /// The entries that this pass wrote.
    pub(crate) entered: Vec<Entry>,
    /// What stands in `status.pending` that this host cannot read.
    pub(crate) unreadable: Option<String>,
    /// What this process knows of each entry, by its key. It goes back to the key of the pass at every end.
    pub(crate) known: BTreeMap<String, Known>,
    /// Of each part of the last publication what the API server did not keep: writing just that again is of no use. It
    /// goes back to the key of the pass, too.
    pub(crate) futile: BTreeMap<Part, Digest>,
}

/// A create that was or may have been performed.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) entry: PendingEntry,
    pub(crate) fate: Fate,
}

/// What came of a create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// Nobody has said yet.
    Open,
    /// The cloud said, when it was asked.
    Resolved(Resolution),
    /// Its act was answered: it was performed, or changed nothing.
    Answered,
    /// Its act never left this host.
    NeverSent,
}

impl Fate {
    /// Whether the entry may go.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Fate::Open | Fate::Resolved(Resolution::Unknown(_)))
    }
}

/// What a process knows of a pending entry. It dies with the process: another one has to ask the cloud.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Since when this process does.
    pub(super) since: Boot,
    /// For how long other processes knew of it before.
    pub(super) before: Duration,
    /// Whether it was this process that wrote it,
    pub(crate) written_here: bool,
    /// and whether it sent what the entry announces.
    pub(crate) sent: bool,
}

/// A conclusion that keeps the contract.
#[derive(Debug)]
pub(crate) struct Concluded {
    pub(super) conclusion: Conclusion,
    /// Its patch; an empty object where it has none.
    pub(super) patch: Value,
}

impl Known {
    /// An entry that was there already.
    pub(super) fn seen(now: Boot, before: Duration) -> Self {
        Known {
            since: now,
            before,
            written_here: false,
            sent: false,
        }
    }

    /// An entry that this process writes.
    pub(super) fn written(now: Boot) -> Self {
        Known {
            written_here: true,
            ..Known::seen(now, Duration::ZERO)
        }
    }

    /// For how long hosts have known of it.
    pub(super) fn waited(self, now: Boot) -> Duration {
        (now - self.since).saturating_add(self.before)
    }

    /// Whether it announces what nobody ever sent: another process, or this one before it crashed, may have.
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

    /// What the pass was handed of which nobody can say what came of it.
    pub(super) fn in_doubt(&self) -> impl Iterator<Item = &PendingEntry> {
        let open = self.found.iter().filter(|found| !found.fate.is_known());
        open.map(|found| &found.entry)
    }

    /// Whether the pass was handed a create that happened or may have happened.
    pub(super) fn was_in_doubt(&self) -> bool {
        let absent =
            |entry: &Entry| matches!(entry.fate, Fate::NeverSent | Fate::Resolved(Resolution::Absent));
        self.unreadable.is_some() || !self.found.iter().all(absent)
    }

    /// The locks that were busy when a role asked for them, in the order in which it did.
    pub(crate) fn busy_locks(&self) -> Vec<String> {
        let journal = self.roles.iter().flat_map(|role| &role.journal);
        let busy = |entry: &JournalEntry| match (&entry.request, &entry.answer) {
            (Request::Ask(ask), Ok(answer)) if &**answer == LockAnswer::Busy.json() => match &ask.question {
                Question::Lock(name) => Some(name.clone()),
                _ => None,
            },
            _ => None,
        };
        journal.filter_map(busy).collect()
    }

    /// Notes what came of an entry that this pass wrote.
    pub(super) fn resolve_entered(&mut self, key: &str, fate: Fate) {
        if let Some(entry) = self.entered.iter_mut().find(|entry| entry.entry.key == key) {
            entry.fate = fate;
        }
    }
}

impl Context<'_> {
    /// What a write of the primary asks for: that it is still the version that the pass knows.
    pub(super) fn precondition(&self, current: &Object) -> Precondition {
        let mut precondition = current.precondition();
        if !self.is_guarded(Guard::Precondition) {
            precondition.resource_version = None;
        }
        precondition
    }

    /// Takes in what a write of the primary left: into the cache, so that its echo is no news.
    pub(super) fn primary_written(&mut self, purpose: WritePurpose, found: Found) -> Result<(), Failure> {
        // A write answers with what it wrote.
        let answer = found.and_then(|mut found| {
            let gone = || Failure::new(Code::NotFound, "it is gone");
            found.pop().ok_or_else(gone)
        });
        let (version, failure) = match &answer {
            Ok(object) => (Some(object.version().0), None),
            Err(failure) => (None, Some(failure.clone())),
        };
        self.work.writes.push(WriteRecord {
            purpose,
            version,
            failure,
        });
        let is_behind =
            |failure: &Failure| failure.code == Code::Aborted || failure.effect == Effect::Unknown;
        let known = self.work.current.as_ref().map(Object::version);
        self.work.behind = match &answer {
            Err(failure) if is_behind(failure) => known,
            _ => None,
        };
        let object = answer?;
        self.command(Command::Wrote(object.clone()));
        self.work.current = Some(object);
        Ok(())
    }
}
