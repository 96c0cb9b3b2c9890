//! The stored objects as readers see them, the history of their changes, and the indexes that writes need.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use polity_kube_rules::text;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    controllers::budget,
    http::refusal::Refusal,
    kinds::{CRD_RESOURCE, Kind, Registry, custom_kind},
};

/// The most bytes of objects in the history of a resource. Most objects are so small that their number ends it first.
const BYTES: usize = 32 << 20;
/// The changes that a history holds however large their objects are: a watch must have time to fetch them.
const LEAST: usize = 16;

/// A stored object. It is shared and never changed.
pub(crate) type Object = Arc<Stored>;

/// The text of an object. Many objects are stored and few are written, so only a write makes a tree.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The canonical text.
    json: Box<str>,
    uid: Box<str>,
}

/// An object that is to be stored. A write gives it its resourceVersion. The text of a large object takes milliseconds to make,
/// so who replaces one makes this before the store is held.
#[derive(Debug)]
pub(crate) struct Draft(Stored);

impl From<Value> for Draft {
    fn from(mut value: Value) -> Self {
        value["metadata"]["resourceVersion"] = "".into();
        Self(Stored::of(value))
    }
}

impl std::ops::Deref for Draft {
    type Target = Stored;

    fn deref(&self) -> &Stored {
        &self.0
    }
}

impl Stored {
    pub(crate) fn new(value: Value) -> Object {
        Arc::new(Self::of(value))
    }

    fn of(value: Value) -> Self {
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default().into();
        let json = text::canonical(value).into();
        Self { json, uid }
    }

    /// The same object with this resourceVersion.
    pub(crate) fn at_revision(&self, revision: u64) -> Object {
        let version =
            text::at(&self.json, "metadata.resourceVersion").expect("drafts and stored objects have one");
        let start = version.as_ptr().addr() - self.json.as_ptr().addr();
        let (before, after) = (&self.json[..start], &self.json[start + version.len()..]);
        let json = [before, &format!("\"{revision}\""), after].concat().into();
        let uid = self.uid.clone();
        Arc::new(Self { json, uid })
    }

    /// The text of the JSON.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// A new tree of the whole object.
    pub(crate) fn tree(&self) -> Value {
        text::tree(&self.json)
    }

    /// The value at a dotted path; null if there is none.
    pub(crate) fn at(&self, path: &str) -> Value {
        text::value_at(&self.json, path).unwrap_or_default()
    }

    /// `metadata.uid`, empty where there is none.
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// Whether its deletion has begun.
    pub(crate) fn is_deleting(&self) -> bool {
        text::at(&self.json, "metadata.deletionTimestamp").is_some()
    }

    /// The uids in its owner references.
    pub(crate) fn owners(&self) -> Vec<String> {
        let owners = match self.at("metadata.ownerReferences") {
            Value::Array(owners) => owners,
            _ => return Vec::new(),
        };
        let uids = owners.iter().filter_map(|owner| owner["uid"].as_str());
        uids.map(str::to_owned).collect()
    }
}

/// The identity of a stored object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// As [`crate::kinds::Kind::storage`].
    pub(crate) resource: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// Namespace and name: the order of lists.
pub(crate) type Place = (Arc<str>, Arc<str>);

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    /// The object before the change; `None` if it was created.
    pub(crate) previous: Option<Object>,
    /// The object with `metadata.resourceVersion` equal to `revision`; for a deletion, in its last state.
    pub(crate) object: Object,
    pub(crate) deleted: bool,
}

/// The objects of one resource, sorted by namespace and name.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) objects: BTreeMap<Place, Object>,
    /// The history, newest change last.
    history: VecDeque<Arc<Change>>,
    /// The bytes of the objects in the history, each as its change left it. The change after it shares the text.
    bytes: usize,
    /// Changes up to this revision are no longer in `history`.
    forgotten: u64,
    /// The revision of the newest change, for watches to wait on.
    progress: watch::Sender<u64>,
    /// Whether the kind is no longer served. Watches end once they have seen all changes.
    pub(crate) closed: bool,
}

impl Table {
    fn new(forgotten: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            bytes: 0,
            forgotten,
            progress: watch::Sender::new(forgotten),
            closed: false,
        }
    }

    /// The changes after `revision`, oldest first; 410 if some of them are forgotten.
    pub(crate) fn since(
        &self,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Change>>, Refusal> {
        if revision < self.forgotten {
            let message = format!("too old resource version: {revision} ({})", self.forgotten);
            return Err(Refusal::expired(message));
        }
        let first = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(first..))
    }

    /// The objects as they were at `revision`.
    pub(crate) fn at(&self, revision: u64) -> Result<BTreeMap<Place, Object>, Refusal> {
        let mut objects = self.objects.clone();
        for change in self.since(revision)?.rev() {
            let key = (change.key.namespace.clone(), change.key.name.clone());
            match &change.previous {
                Some(previous) => objects.insert(key, previous.clone()),
                None => objects.remove(&key),
            };
        }
        Ok(objects)
    }

    /// The objects of a namespace, or of all.
    pub(crate) fn of_namespace(&self, namespace: Option<&str>) -> impl Iterator<Item = (&Place, &Object)> {
        let from: Place = (namespace.unwrap_or_default().into(), "".into());
        let namespace = namespace.map(str::to_owned);
        self.objects
            .range(from..)
            .take_while(move |((found, _), _)| namespace.as_deref().is_none_or(|wanted| wanted == &**found))
    }

    /// Objects are read by the present schema of their kind, whenever they were written
    /// (apiextensions-apiserver, defaulting and pruning in its storage codec). This changes no
    /// resourceVersion.
    fn read_by(&mut self, kind: &Kind) {
        for object in self.objects.values_mut() {
            if let Some(read) = kind.read(object) {
                *object = read;
            }
        }
    }

    /// Notifies of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    fn remember(&mut self, change: Arc<Change>, most: usize) {
        let revision = change.revision;
        self.bytes += change.object.json().len();
        self.history.push_back(change);
        while self.history.len() > most || (self.bytes > BYTES && self.history.len() > LEAST) {
            let Some(oldest) = self.history.pop_front() else {
                break;
            };
            self.bytes -= oldest.object.json().len();
            self.forgotten = oldest.revision;
        }
        self.progress.send_replace(revision);
    }
}

/// All stored objects, and the kinds that are served.
#[derive(Debug)]
pub(crate) struct State {
    /// The resourceVersion of the last change of anything.
    pub(crate) revision: u64,
    pub(crate) registry: Arc<Registry>,
    /// The number of changes that each table remembers.
    pub(crate) history: usize,
    tables: BTreeMap<Arc<str>, Table>,
    uids: BTreeMap<String, Key>,
    owned: BTreeMap<String, BTreeSet<Key>>,
    in_namespace: BTreeMap<Arc<str>, usize>,
    /// The disruption budgets that time alone will change, and when.
    budgets: BTreeMap<Key, Timestamp>,
    /// The revision at which the history of a new table begins.
    born: u64,
}

impl State {
    pub(crate) fn new(revision: u64, history: usize) -> Self {
        let registry = Registry::builtin();
        let mut state = Self {
            revision,
            registry: Arc::new(registry.clone()),
            history,
            tables: BTreeMap::new(),
            uids: BTreeMap::new(),
            owned: BTreeMap::new(),
            in_namespace: BTreeMap::new(),
            budgets: BTreeMap::new(),
            born: revision,
        };
        for kind in registry.all() {
            state.table_mut(&kind.storage);
        }
        state
    }

    /// The same objects and kinds without their history. Writes work on such a copy.
    pub(super) fn copy(&self) -> Self {
        let mut copy = Self::new(self.revision, 0);
        for (resource, table) in &self.tables {
            for ((namespace, name), object) in &table.objects {
                let key = Key {
                    resource: resource.clone(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                copy.restore(key, object.clone());
            }
        }
        copy
    }

    /// The objects of a resource; `None` if it is not served.
    pub(crate) fn table(&self, resource: &str) -> Option<&Table> {
        self.tables.get(resource)
    }

    /// One object.
    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        let table = self.tables.get(&key.resource)?;
        table.objects.get(&(key.namespace.clone(), key.name.clone()))
    }

    /// Every resource that is or was served, with its objects.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&Arc<str>, &Table)> {
        self.tables.iter()
    }

    /// The object with this uid.
    pub(crate) fn with_uid(&self, uid: &str) -> Option<&Key> {
        self.uids.get(uid)
    }

    /// The objects with an owner reference to this uid.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.owned.get(uid).into_iter().flatten()
    }

    /// How many objects are in a namespace.
    pub(crate) fn count_in(&self, namespace: &str) -> usize {
        self.in_namespace.get(namespace).copied().unwrap_or(0)
    }

    /// The disruption budgets whose status has changed by time alone.
    pub(crate) fn late_budgets(&self, now: Timestamp) -> impl Iterator<Item = &Key> {
        let late = self.budgets.iter().filter(move |(_, end)| **end <= now);
        late.map(|(key, _)| key)
    }

    fn table_mut(&mut self, resource: &Arc<str>) -> &mut Table {
        let born = self.born;
        self.tables
            .entry(resource.clone())
            .or_insert_with(|| Table::new(born))
    }

    /// Makes changes visible, in their order.
    pub(crate) fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.revision = change.revision;
            self.place(
                &change.key,
                change.previous.as_ref(),
                (!change.deleted).then_some(&change.object),
            );
            if &*change.key.resource == CRD_RESOURCE {
                self.serve(&change);
            }
            let history = self.history;
            self.table_mut(&change.key.resource.clone())
                .remember(Arc::new(change), history);
        }
    }

    /// Adds an object from the disk, without history.
    pub(crate) fn restore(&mut self, key: Key, object: Object) {
        self.place(&key, None, Some(&object));
        if &*key.resource == CRD_RESOURCE {
            let change = Change {
                revision: self.revision,
                key,
                previous: None,
                object,
                deleted: false,
            };
            self.serve(&change);
        }
    }

    fn place(&mut self, key: &Key, previous: Option<&Object>, next: Option<&Object>) {
        if let Some(previous) = previous {
            self.unindex(key, previous);
        }
        if let Some(next) = next {
            self.index(key, next);
        }
        match (previous.is_some(), next.is_some()) {
            (false, true) => *self.in_namespace.entry(key.namespace.clone()).or_default() += 1,
            (true, false) => self.leave_namespace(&key.namespace),
            _ => {}
        }
        let place = (key.namespace.clone(), key.name.clone());
        let table = self.table_mut(&key.resource);
        match next {
            Some(object) => table.objects.insert(place, object.clone()),
            None => table.objects.remove(&place),
        };
    }

    fn leave_namespace(&mut self, namespace: &Arc<str>) {
        if let Some(count) = self.in_namespace.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.in_namespace.remove(namespace);
            }
        }
    }

    fn index(&mut self, key: &Key, object: &Object) {
        self.uids.insert(object.uid().to_owned(), key.clone());
        for owner in object.owners() {
            self.owned.entry(owner).or_default().insert(key.clone());
        }
        if &*key.resource == budget::RESOURCE
            && let Some(end) = budget::earliest_end(&object.tree())
        {
            self.budgets.insert(key.clone(), end);
        }
    }

    fn unindex(&mut self, key: &Key, object: &Object) {
        self.budgets.remove(key);
        self.uids.remove(object.uid());
        for owner in object.owners() {
            if let Some(keys) = self.owned.get_mut(&owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(&owner);
                }
            }
        }
    }

    /// Starts to serve the kind of a written CRD, or stops serving that of a removed one.
    fn serve(&mut self, change: &Change) {
        let crd = change.object.tree();
        let spec = &crd["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if change.deleted {
            Arc::make_mut(&mut self.registry).remove(&text(&spec["group"]), &text(&spec["names"]["plural"]));
            if let Some(table) = self.tables.get_mut(&change.key.name) {
                table.closed = true;
                table.progress.send_modify(|_| {});
            }
            return;
        }
        let unchanged = change.previous.as_ref().is_some_and(|previous| {
            previous.at("spec") == *spec && previous.is_deleting() == change.object.is_deleting()
        });
        if unchanged {
            return;
        }
        match custom_kind(&crd) {
            Ok(kind) => {
                let table = self.table_mut(&kind.storage);
                table.closed = false;
                table.read_by(&kind);
                Arc::make_mut(&mut self.registry).insert(Arc::new(kind));
            }
            Err(causes) => {
                tracing::error!(crd = %change.key.name, ?causes, "a stored CRD is not served");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_draft_is_stored_as_its_object_with_the_resource_version_of_the_write() {
        for version in [Value::Null, json!("7"), json!("4711")] {
            let object = |version: Value| {
                let like_it = json!({"a\"}": "\"resourceVersion\":\"\"", "resourceVersion": "9"});
                let metadata =
                    json!({"annotations": like_it, "name": "é", "uid": "u", "resourceVersion": version});
                json!({"apiVersion": "v1", "data": like_it, "metadata": metadata})
            };
            let stored = Draft::from(object(version)).at_revision(12_345);
            let whole = Stored::new(object(json!("12345")));
            assert_eq!((stored.json(), stored.uid()), (whole.json(), "u"));
            assert_eq!(
                stored.at_revision(6).json(),
                Stored::new(object(json!("6"))).json()
            );
        }
    }

    /// The revision up to which changes are forgotten after so many changes of an object with so many bytes.
    fn forgotten(count: u64, bytes: usize, most: usize) -> u64 {
        let mut table = Table::new(0);
        for revision in 1..=count {
            let change = Change {
                revision,
                key: Key {
                    resource: "configmaps".into(),
                    namespace: "default".into(),
                    name: "a".into(),
                },
                previous: None,
                object: Stored::new(json!("x".repeat(bytes - 2))),
                deleted: false,
            };
            table.remember(Arc::new(change), most);
        }
        assert_eq!(table.history.len() as u64, count - table.forgotten);
        table.forgotten
    }

    #[test]
    fn a_history_ends_with_the_number_of_its_changes_or_with_the_bytes_of_their_objects_but_not_at_once() {
        assert_eq!(forgotten(10, 2, 8), 2);
        assert_eq!(forgotten(40, 1 << 20, 100), 8);
        assert_eq!(forgotten(20, 3 << 20, 100), 20 - LEAST as u64);
    }
}
