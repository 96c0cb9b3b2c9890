//! The writes of a publication, drafted from the primary as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::conditions::{HostCondition, set_host_conditions};
use crate::call::PendingEntry;
use crate::merge::{self, EditPath, Edits, Part};
use crate::object::Object;
use crate::projection::{self, Digest};
use crate::reconcile::pending::Pending;
use crate::reconcile::work::{Entry, EntryHistory};
use crate::reconcile::{Frame, Work};
use crate::time::{Unix, millis};
use crate::tree::Tree;

/// The writes of a publication, to be drafted.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::reconcile) struct Draft {
    pub(super) stage: Stage,
    /// The primary as it is now.
    pub(super) current: Object,
    /// After a conflict: the primary as the pass knew it before.
    pub(super) known: Option<Object>,
    pub(super) edits: Edits,
    pub(super) entries: Entries,
    /// The host's conditions; `None` if the kind has no conditions.
    pub(super) conditions: Option<Vec<HostCondition>>,
    /// The changes that the API server did not keep the last time.
    pub(super) futile: BTreeMap<Part, Digest>,
    pub(super) unix: Unix,
    /// Whether edits of values that another writer changed are dropped.
    pub(super) rebases: bool,
}

/// When a publication is drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile) enum Stage {
    /// Before the write of this part.
    Begun(Part),
    /// After the write of this part. The primary is the answer of the API server.
    Written(Part),
    /// After the primary was read again, because the effect of the write of this part is unknown or it met a conflict.
    Reread(Part),
}

/// What a publication writes next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::reconcile) struct Drafted {
    /// The patch of each part that needs a change and can have one.
    patches: BTreeMap<Part, Value>,
    /// What is left to write of the part that was written.
    pub(super) left: Option<Left>,
    /// The edited values that another writer has changed.
    pub(super) conflicts: Vec<EditPath>,
    /// Whether the primary contains changes beyond the write that failed. That write may have been performed.
    pub(super) is_news: bool,
}

/// Changes that the API server did not keep.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Left {
    pub(super) paths: Vec<EditPath>,
    pub(super) digest: Digest,
}

/// The entries that a publication removes from `status.pending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drops {
    /// A pass without a conclusion leaves all entries to the next pass.
    None,
    Resolved,
    All,
}

/// What a publication makes of the entries of `status.pending`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entries {
    drops: Drops,
    /// The keys of the entries whose outcome is known.
    resolved: BTreeSet<String>,
    /// For how long hosts have known of each entry.
    waited: BTreeMap<String, Duration>,
}

impl Draft {
    /// The bytes of text that are read.
    pub(in crate::reconcile) fn bytes(&self) -> u64 {
        let current = self.current.json().len() as u64;
        match self.edits.is_empty() {
            true => current,
            false => current.max(self.edits.bytes()),
        }
    }

    pub(in crate::reconcile) fn run(&self) -> Drafted {
        let now = self.edits.tree_of(&self.current);
        let mut drafted = Drafted::default();
        let mut edits = self.edits.clone();
        if let Stage::Reread(part) = self.stage {
            drafted.is_news = self.known.as_ref().is_none_or(|known| self.is_news(part, known));
            if self.rebases {
                drafted.conflicts = edits.conflicts(&now);
                edits = edits.without(&drafted.conflicts);
            }
        }
        let desired = self.desired(&edits, &now);
        for part in [Part::Main, Part::Status, Part::Finalizer] {
            let Some(patch) = merge::change(part, &now, &desired) else {
                continue;
            };
            if self.stage == Stage::Written(part) {
                drafted.left = Some(Left {
                    paths: merge::not_kept(&patch, &now),
                    digest: projection::digest(&patch),
                });
            } else if !self.is_futile(part, &patch) {
                drafted.patches.insert(part, patch);
            }
        }
        drafted
    }

    /// Whether a part consists only of changes that the API server did not keep the last time.
    fn is_futile(&self, part: Part, patch: &Value) -> bool {
        let left = self.futile.get(&part);
        left.is_some_and(|left| projection::digest(patch) == *left)
    }

    /// Whether the primary contains changes beyond the write of this part of the one that the pass knew.
    fn is_news(&self, part: Part, known: &Object) -> bool {
        let now = self.edits.tree_of(known);
        let mut written = Value::clone(&now);
        if let Some(patch) = merge::change(part, &now, &self.desired(&self.edits, &now)) {
            merge::apply(&patch, &mut written);
        }
        // Only a write of the main part can have counted the generation up, by one. People may have changed the spec and
        // changed it back meanwhile, and a policy that shows the generation has not seen theirs.
        let written = with_generation(written, &self.current, u64::from(part == Part::Main));
        self.current.version() != known.version() && !written.says_the_same(&self.current)
    }

    /// The object after the publication: the edits of the policies, the remaining entries, and the host's conditions.
    fn desired(&self, edits: &Edits, now: &Value) -> Value {
        let mut desired = Tree::new(edits.onto(now));
        let pending = Pending::standing(projection::get(now, "status.pending").cloned());
        // Entries that another writer removed stay removed.
        if self.entries.drops != Drops::None && pending.entries().next().is_some() {
            match pending.left(|entry| self.entries.left(entry), &[]) {
                Value::Null => desired.remove(&["status", "pending"]),
                left => desired.set(&["status", "pending"], left),
            }
        }
        if let Some(conditions) = &self.conditions {
            set_host_conditions(&mut desired, now, conditions, self.unix);
        }
        desired.into_value()
    }
}

impl Drafted {
    /// The first part, from this one on, that is to be written, with its patch.
    pub(super) fn take_next(&mut self, part: Part) -> Option<(Part, Value)> {
        let next = *self.patches.range(part..).next()?.0;
        self.patches.remove_entry(&next)
    }
}

impl Entries {
    pub(super) fn of(drops: Drops, frame: &Frame, work: &Work) -> Self {
        let known = || work.found.iter().chain(&work.entered);
        let resolved = known().filter(|known| known.fate.is_known());
        let waited = |known: &Entry| (known.entry.key.clone(), waited(&known.entry, frame, work));
        Entries {
            drops,
            resolved: resolved.map(|known| known.entry.key.clone()).collect(),
            waited: known().map(waited).collect(),
        }
    }

    /// What is left of an entry: nothing, or the entry with the time for which hosts have known of it.
    fn left(&self, entry: &PendingEntry) -> Option<PendingEntry> {
        if self.drops == Drops::All || self.resolved.contains(&entry.key) {
            return None;
        }
        let waited = self.waited.get(&entry.key).copied().unwrap_or_default();
        Some(PendingEntry {
            waited: entry.waited.max(waited),
            ..entry.clone()
        })
    }
}

/// The time for which hosts have known of an entry. It is rounded down to steps of a thirty-second of the time after
/// which the create is visible, but of at least ten seconds: so a host that lives for a short time saves the next one
/// most of the wait, and an entry costs few writes.
fn waited(entry: &PendingEntry, frame: &Frame, work: &Work) -> Duration {
    let operation = frame.binding.catalogue.operations.get(&entry.operation);
    let visible_within = operation.map_or(0, |operation| millis(operation.visible_within));
    let step = (visible_within / 32).max(10_000).min(visible_within.div_ceil(4));
    // The time is measured at the beginning of the pass, so that every part of the publication computes the same
    // value.
    let waited = |history: &EntryHistory| millis(history.waited(frame.started.boot));
    let waited = work
        .histories
        .get(&entry.key)
        .map_or(0, waited)
        .min(visible_within);
    let steps = waited.checked_div(step).unwrap_or(0);
    let is_over = waited == visible_within;
    Duration::from_millis(if is_over { waited } else { steps * step })
}

/// An object with the generation of another one, if that is at most so much higher: an API server counts the changes of a
/// spec, and one write is one change. A generation that is higher still tells of changes by others.
fn with_generation(tree: Value, of: &Object, most: u64) -> Object {
    let before = tree["metadata"]["generation"].as_u64().unwrap_or_default();
    let is_own = of
        .generation()
        .is_none_or(|now| now <= before.saturating_add(most));
    let names: &[&str] = if is_own { &["generation"] } else { &[] };
    Object::new(with_metadata(tree, of, names))
}

/// An object with this metadata of another one: the API server sets it.
fn with_metadata(mut tree: Value, of: &Object, names: &[&str]) -> Value {
    for name in names {
        let value = of.at(&format!("metadata.{name}")).unwrap_or_default();
        merge::apply(&json!({"metadata": {*name: value}}), &mut tree);
    }
    tree
}
