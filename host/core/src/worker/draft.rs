//! The writes of a publication, drafted from the primary as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::check::PER_BYTE;
use super::conditions::{HostCondition, set_host_conditions};
use crate::entry::PendingEntry;
use crate::merge::{self, EditPath, Edits, Part};
use crate::object::{Object, ResourceVersion};
use crate::pending::Pending;
use crate::projection::{self, Digest};
use crate::time::Unix;
use crate::tree::Tree;

/// The writes of a publication, to be drafted.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    pub(crate) stage: Stage,
    /// The primary as it is now.
    pub(crate) current: Object,
    /// After a conflict: the primary as the pass knew it before.
    pub(crate) known: Option<Object>,
    pub(crate) edits: Edits,
    pub(crate) entries: Entries,
    /// The host's conditions; `None` if the kind has no conditions.
    pub(crate) conditions: Option<Vec<HostCondition>>,
    /// What was written last, by part.
    pub(crate) written: BTreeMap<Part, Written>,
    pub(crate) unix: Unix,
    /// Whether edits of values that another writer changed are dropped.
    pub(crate) rebases: bool,
}

/// When a publication is drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before its first write.
    Begun,
    /// After the primary was read again, because the effect of the write of this part is unknown or it met a conflict.
    Reread(Part),
}

/// What was written of a part, and the version of the object since then. The same write on that version would change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) digest: Digest,
    pub(crate) version: ResourceVersion,
}

/// What a publication writes next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drafted {
    /// The patch of each part that needs a change and can have one, and its digest.
    pub(crate) patches: BTreeMap<Part, (Value, Digest)>,
    /// What the API server did not keep of the last write. It is not written again.
    pub(crate) not_kept: Vec<EditPath>,
    /// The edited values that another writer has changed.
    pub(crate) conflicts: Vec<EditPath>,
    /// Whether the primary contains changes beyond the write that failed. That write may have been performed.
    pub(crate) is_news: bool,
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

impl Draft {
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
    pub fn run(&self) -> Drafted {
        let now = self.edits.tree_of(&self.current);
        let mut drafted = Drafted {
            cost: self.cost(),
            ..Drafted::default()
        };
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
            let digest = projection::digest(&patch);
            let version = self.current.version();
            if self.written.get(&part) == Some(&Written { digest, version }) {
                drafted.not_kept.extend(merge::not_kept(&patch, &now))
            } else {
                drop(drafted.patches.insert(part, (patch, digest)))
            }
        }
        drafted
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
