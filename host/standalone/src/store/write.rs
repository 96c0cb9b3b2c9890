//! The changes of one request. All of them are worked out before any is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use polity_kube_rules::time::meta_time;
use sha2::{Digest as _, Sha256};

use super::state::{Change, Draft, Key, Object, State};
use crate::kinds::Registry;

/// The stored objects with the changes so far.
pub(crate) struct Write<'a> {
    state: &'a State,
    seed: &'a [u8; 16],
    now: Timestamp,
    revision: u64,
    on_top: BTreeMap<Key, Option<Object>>,
    owned: BTreeMap<String, BTreeSet<Key>>,
    count: BTreeMap<Arc<str>, isize>,
    changes: Vec<Change>,
}

impl<'a> Write<'a> {
    pub(super) fn new(state: &'a State, now: Timestamp, seed: &'a [u8; 16]) -> Self {
        Self {
            state,
            seed,
            now,
            revision: state.revision,
            on_top: BTreeMap::new(),
            owned: BTreeMap::new(),
            count: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// The changes so far, in their order.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The disruption budgets whose status has changed by time alone.
    pub(crate) fn late_budgets(&self) -> Vec<Key> {
        self.state.late_budgets(self.now).cloned().collect()
    }

    pub(super) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// The time of this write in the form of metadata.
    pub(crate) fn now(&self) -> String {
        meta_time(self.now)
    }

    /// The time of this write.
    pub(crate) fn time(&self) -> Timestamp {
        self.now
    }

    /// The time this many seconds from now, in the form of metadata.
    pub(crate) fn now_plus(&self, seconds: i64) -> String {
        let later = jiff::SignedDuration::from_secs(seconds);
        meta_time(self.now.checked_add(later).unwrap_or(self.now))
    }

    /// The kinds served before this write.
    pub(crate) fn registry(&self) -> &'a Registry {
        &self.state.registry
    }

    /// The resourceVersion of the last change so far.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// One object.
    pub(crate) fn get(&self, key: &Key) -> Option<Object> {
        match self.on_top.get(key) {
            Some(found) => found.clone(),
            None => self.state.get(key).cloned(),
        }
    }

    /// The object with this uid.
    pub(crate) fn with_uid(&self, uid: &str) -> Option<(Key, Object)> {
        let key = self.state.with_uid(uid)?;
        let object = self.get(key).filter(|object| object.uid() == uid)?;
        Some((key.clone(), object))
    }

    /// The objects with an owner reference to this uid.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<(Key, Object)> {
        let mut keys: BTreeSet<&Key> = self.state.owned_by(uid).collect();
        keys.extend(self.owned.get(uid).into_iter().flatten());
        let owned = |object: &Object| object.owners().iter().any(|owner| owner == uid);
        let found = keys
            .into_iter()
            .filter_map(|key| Some((key.clone(), self.get(key).filter(owned)?)));
        found.collect()
    }

    /// Every object of a namespace, of every resource.
    pub(crate) fn content_of(&self, namespace: &str) -> Vec<Key> {
        let mut keys = Vec::new();
        for (resource, table) in self.state.tables() {
            for ((namespace, name), _) in table.of_namespace(Some(namespace)) {
                let (namespace, name) = (namespace.clone(), name.clone());
                keys.push(Key {
                    resource: resource.clone(),
                    namespace,
                    name,
                });
            }
        }
        keys
    }

    /// All objects of a resource, in the order of lists.
    pub(crate) fn all_of(&self, resource: &Arc<str>, namespace: Option<&str>) -> Vec<(Key, Object)> {
        let stored = self.state.table(resource).into_iter();
        let stored = stored.flat_map(|table| table.of_namespace(namespace));
        let mut found: Vec<(Key, Object)> = Vec::new();
        for ((namespace, name), _) in stored {
            let key = Key {
                resource: resource.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
            };
            found.extend(self.get(&key).map(|object| (key, object)));
        }
        let known = found.len();
        for (key, object) in &self.on_top {
            let here = key.resource == *resource && namespace.is_none_or(|wanted| wanted == &*key.namespace);
            if let Some(object) = object.as_ref().filter(|_| here && self.state.get(key).is_none()) {
                found.push((key.clone(), object.clone()));
            }
        }
        if found.len() > known {
            found.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        found
    }

    /// Whether a resource has objects left.
    pub(crate) fn is_empty(&self, resource: &str) -> bool {
        let Some(table) = self.state.table(resource) else {
            return true;
        };
        let here = |key: &Key| &*key.resource == resource;
        let (added, removed) =
            self.on_top
                .iter()
                .filter(|(key, _)| here(key))
                .fold((0, 0), |(a, r), (key, o)| {
                    match (self.state.get(key).is_some(), o.is_some()) {
                        (false, true) => (a + 1, r),
                        (true, false) => (a, r + 1),
                        _ => (a, r),
                    }
                });
        table.objects.len() + added == removed
    }

    /// How many objects are in a namespace.
    pub(crate) fn count_in(&self, namespace: &str) -> usize {
        let change = self.count.get(namespace).copied().unwrap_or(0);
        self.state.count_in(namespace).saturating_add_signed(change)
    }

    /// A new uid, in the form of a random UUID (RFC 9562 version 4).
    pub(crate) fn new_uid(&self) -> String {
        let mut bytes = self.digest("uid");
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// Five characters for `generateName`, without vowels and look-alikes (apimachinery `rand.String`).
    pub(crate) fn new_suffix(&self, attempt: u32) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let bytes = self.digest(&format!("name {attempt}"));
        bytes[..5]
            .iter()
            .map(|&byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()]))
            .collect()
    }

    /// A unique digest: a revision is used once, and at most one thing is made in it for each purpose.
    fn digest(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(self.revision.to_be_bytes());
        hash.update(purpose);
        hash.finalize().into()
    }

    /// Creates or replaces an object. Returns it with its new resourceVersion.
    pub(crate) fn put(&mut self, key: &Key, object: impl Into<Draft>) -> Object {
        self.change(key, object.into(), false)
    }

    /// Removes an object. Returns its last state, which has the resourceVersion of the removal.
    pub(crate) fn remove(&mut self, key: &Key, object: impl Into<Draft>) -> Object {
        self.change(key, object.into(), true)
    }

    fn change(&mut self, key: &Key, object: Draft, deleted: bool) -> Object {
        self.revision += 1;
        let object = object.at_revision(self.revision);
        let previous = self.get(key);
        let delta = isize::from(!deleted) - isize::from(previous.is_some());
        *self.count.entry(key.namespace.clone()).or_default() += delta;
        for owner in object.owners() {
            self.owned.entry(owner).or_default().insert(key.clone());
        }
        self.on_top
            .insert(key.clone(), (!deleted).then(|| object.clone()));
        let (revision, key) = (self.revision, key.clone());
        self.changes.push(Change {
            revision,
            key,
            previous,
            object: object.clone(),
            deleted,
        });
        object
    }
}
