//! The writes of a publication, drafted from the primary as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::conditions::{HostCondition, set_host_conditions};
use super::patch_check::PER_BYTE;
use crate::entry::PendingEntry;
use crate::merge::{self, EditPath, Edits, Part};
use crate::object::{Object, ResourceVersion};
use crate::pending::Pending;
use crate::projection::{self, Digest};
use crate::time::Unix;
use crate::tree::Tree;

/// The writes of a publication, to be drafted.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftInput {
    /// The primary as it is now.
    pub(crate) current: Object,
    pub(crate) edits: Edits,
    pub(crate) entries: Entries,
    /// The host's conditions; `None` if the kind has no conditions.
    pub(crate) conditions: Option<Vec<HostCondition>>,
    /// What was written last, by part.
    pub(crate) written: BTreeMap<Part, LastWrite>,
    pub(crate) unix: Unix,
    /// Whether edits of values that another writer changed are dropped, because the primary was read again.
    pub(crate) rebases: bool,
}

/// What was written of a part, and the version of the object since then. The same write on that version would change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastWrite {
    pub(crate) digest: Digest,
    pub(crate) version: ResourceVersion,
}

/// What a publication writes next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// The patch of each part that needs a change and can have one, and its digest.
    pub(crate) patches: BTreeMap<Part, (Value, Digest)>,
    /// What the API server did not keep of the last write. It is not written again.
    pub(crate) not_kept: Vec<EditPath>,
    /// The edited values that another writer has changed.
    pub(crate) conflicts: Vec<EditPath>,
    /// The cost at the threads, in fuel.
    pub cost: u64,
}

/// The entries that a publication removes from `status.pending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drops {
    /// A pass without a conclusion leaves all entries to the next pass.
    None,
    Resolved,
    All,
}

/// What a publication makes of the entries of `status.pending`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entries {
    pub(crate) drops: Drops,
    /// The keys of the entries whose outcome is known.
    pub(crate) resolved: BTreeSet<String>,
    /// For how long hosts have known of each entry.
    pub(crate) waited: BTreeMap<String, Duration>,
}

impl DraftInput {
    /// The cost at the threads, in fuel: the object becomes trees.
    pub(crate) fn cost(&self) -> u64 {
        let current = self.current.json().len() as u64;
        let bytes = if self.edits.is_empty() {
            current
        } else {
            current.max(self.edits.bytes())
        };
        bytes.saturating_mul(PER_BYTE)
    }

    /// Drafts.
    pub fn run(&self) -> Draft {
        let now = self.edits.tree_of(&self.current);
        let mut drafted = Draft {
            cost: self.cost(),
            ..Draft::default()
        };
        let mut edits = self.edits.clone();
        if self.rebases {
            drafted.conflicts = edits.conflicts(&now);
            edits = edits.without(&drafted.conflicts);
        }
        let desired = self.desired(&edits, &now);
        for part in [Part::Main, Part::Status, Part::Finalizer] {
            let Some(patch) = merge::change(part, &now, &desired) else {
                continue;
            };
            let digest = projection::digest(&patch);
            let version = self.current.version();
            if self.written.get(&part) == Some(&LastWrite { digest, version }) {
                drafted.not_kept.extend(merge::not_kept(&patch, &now));
            } else {
                drafted.patches.insert(part, (patch, digest));
            }
        }
        drafted
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

impl Draft {
    /// The first part, from this one on, that is to be written, with its patch.
    pub(crate) fn take_next(&mut self, part: Part) -> Option<(Part, Value, Digest)> {
        let next = *self.patches.range(part..).next()?.0;
        let (patch, digest) = self.patches.remove(&next)?;
        Some((next, patch, digest))
    }
}

impl Entries {
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
