//! The cache: the objects of each scope as its watch showed them, never older than this host's own writes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use polity_kube_rules::deletion::is_ended;
use polity_kube_rules::text;

use crate::contract::{Kind, ObjectRef};
use crate::key::ObjectKey;
use crate::object::{Object, ResourceVersion};
use crate::scope::{Scope, WatchEvent};
use crate::time::Boot;

/// The largest number of ends that a scope remembers for objects that it never showed. The watch may still show such
/// an object late. A policy can also name objects that never existed, so the number is limited.
const UNSEEN: usize = 1_024;

/// A change of one object in one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The scope that shows the change.
    pub scope: Scope,
    /// The namespace and name of the object.
    pub place: ObjectKey,
    /// The object before the change; `None` if the change created it.
    pub before: Option<Object>,
    /// The object after the change; `None` if the change removed it.
    pub after: Option<Object>,
}

impl Change {
    /// The object after the change; the one before it if the change removed it.
    pub(crate) fn object(&self) -> Option<&Object> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// The objects that the watches showed, by scope.
#[derive(Debug, Default)]
pub struct Cache {
    scopes: BTreeMap<Scope, ScopeCache>,
}

/// Lists by namespace; all objects for `None`.
type Lists = BTreeMap<Option<Box<str>>, Arc<[Object]>>;

#[derive(Debug, Default)]
struct ScopeCache {
    synced: bool,
    /// The last error of the watch; `None` once the watch has listed again.
    watch_error: Option<String>,
    objects: BTreeMap<ObjectKey, Object>,
    /// The lists that were asked for since the last change. All who ask share them.
    lists: RefCell<Lists>,
    /// The newest version that the watch showed of any object, deletions included. A watch shows versions in order.
    shown: ResourceVersion,
    /// Objects that this host saw end, by place and uid. A lagging watch must not bring them back. The place is
    /// needed too, because a policy that deletes an object may name the uid of another object.
    ended: BTreeSet<(ObjectKey, String)>,
    /// Since when no key depends on the scope; `None` while a key does.
    idle_since: Option<Boot>,
}

/// The answer of the cache to a lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<T> {
    /// The scope is watched and synced.
    Known(T),
    /// The scope is watched, but its watch has not listed yet or has failed since. "Not found" must not be concluded
    /// from it.
    Unsynced,
    /// The scope is not watched.
    Unwatched,
}

impl Cache {
    /// Opens a scope. Returns whether the scope is new, so that the caller opens its watch.
    pub fn open(&mut self, scope: &Scope) -> bool {
        let new = !self.scopes.contains_key(scope);
        self.scopes.entry(scope.clone()).or_default().idle_since = None;
        new
    }

    /// Whether a scope is open.
    pub(crate) fn is_open(&self, scope: &Scope) -> bool {
        self.scopes.contains_key(scope)
    }

    /// Closes a scope and forgets what it showed.
    pub fn close(&mut self, scope: &Scope) {
        self.scopes.remove(scope);
    }

    /// All open scopes.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.keys()
    }

    /// Stores whether a key depends on a scope, and returns for how long none has.
    pub fn idle(&mut self, scope: &Scope, now: Boot, depended_on: bool) -> Duration {
        let Some(watched) = self.scopes.get_mut(scope) else {
            return Duration::ZERO;
        };
        if depended_on {
            watched.idle_since = None;
            return Duration::ZERO;
        }
        now - *watched.idle_since.get_or_insert(now)
    }

    /// Enters an event of a watch and returns the changes that it makes.
    pub fn observe(&mut self, scope: &Scope, event: WatchEvent) -> Vec<Change> {
        let Some(watched) = self.scopes.get_mut(scope) else {
            return Vec::new();
        };
        match event {
            // After a list that is older than the events before it, the watch repeats those events. One of an object
            // that has ended since must not bring the object back.
            WatchEvent::Applied(object) if watched.was_gone(&object) => Vec::new(),
            WatchEvent::Applied(object) => {
                watched.shown = watched.shown.max(object.version());
                watched.apply(scope, object).into_iter().collect()
            }
            WatchEvent::Deleted(object) => {
                watched.shown = watched.shown.max(object.version());
                watched.delete(scope, &object).into_iter().collect()
            }
            WatchEvent::Listed { objects, version } => {
                let changes = watched.list(scope, objects, version);
                watched.shown = watched.shown.max(version);
                changes
            }
            WatchEvent::Failed(why) => {
                watched.synced = false;
                watched.watch_error = Some(why);
                Vec::new()
            }
        }
    }

    /// Enters an object that this host just wrote or read into every scope that covers it. A watch that has shown a
    /// newer version has already shown this one, and perhaps the end of the object. In its scope the late reply
    /// changes nothing.
    pub fn own_write(&mut self, object: &Object) -> Vec<Change> {
        let (kind, place) = (object.kind(), ObjectKey::from(object));
        let node = object.str_at("spec.nodeName");
        let ended = object.is_deleting() && {
            let decisive = ["apiVersion", "kind", "metadata", "spec.finalizers"];
            is_ended(&text::tree(&text::projection(object.json(), decisive)))
        };
        self.scopes
            .iter_mut()
            .filter(|(scope, _)| scope.kind == kind && scope.covers_place(&place))
            .filter(|(scope, _)| scope.node.is_none() || scope.node.as_deref() == node.as_deref())
            .filter_map(|(scope, watched)| match ended {
                true => watched.end(scope, place.clone(), object.uid()),
                false if object.version() < watched.shown => None,
                false => watched.apply(scope, scope.trimmed(object)),
            })
            .collect()
    }

    /// Removes an object that this host saw gone from every scope that covers it.
    pub fn own_delete(&mut self, reference: &ObjectRef, uid: &str) -> Vec<Change> {
        let place = ObjectKey::from(reference);
        self.scopes
            .iter_mut()
            .filter(|(scope, _)| scope.kind == reference.kind && scope.covers_place(&place))
            .filter_map(|(scope, watched)| watched.end(scope, place.clone(), uid))
            .collect()
    }

    /// One object as the scope shows it.
    pub fn get(&self, scope: &Scope, place: &ObjectKey) -> Lookup<Option<Object>> {
        match self.scopes.get(scope) {
            None => Lookup::Unwatched,
            Some(watched) if !watched.synced => Lookup::Unsynced,
            Some(watched) => Lookup::Known(watched.objects.get(place).cloned()),
        }
    }

    /// One object as the scope last showed it, also if the scope is not synced.
    pub fn last_known(&self, scope: &Scope, place: &ObjectKey) -> Option<&Object> {
        self.scopes.get(scope)?.objects.get(place)
    }

    /// The newest version of one object in any scope. Each scope has its own watch, and each watch lags on its own.
    /// Of two equal versions the one with all fields is returned.
    pub fn newest(&self, kind: &Kind, place: &ObjectKey) -> Option<&Object> {
        self.scopes
            .iter()
            .rev()
            .filter(|(scope, _)| scope.kind == *kind)
            .filter_map(|(_, watched)| watched.objects.get(place))
            .max_by_key(|object| object.version())
    }

    /// Whether the watch of a scope has listed and has not failed since.
    pub fn is_synced(&self, scope: &Scope) -> bool {
        self.scopes.get(scope).is_some_and(|watched| watched.synced)
    }

    /// The objects of a scope, or those of one namespace of it, ordered by namespace and name.
    pub fn list(&self, scope: &Scope, namespace: Option<&str>) -> Lookup<Arc<[Object]>> {
        match self.scopes.get(scope) {
            None => Lookup::Unwatched,
            Some(watched) if !watched.synced => Lookup::Unsynced,
            Some(watched) => Lookup::Known(watched.listed(namespace)),
        }
    }

    /// The last error of the watch of a scope, if it is failing.
    pub fn watch_error(&self, scope: &Scope) -> Option<&str> {
        self.scopes.get(scope)?.watch_error.as_deref()
    }

    /// All objects of a scope, also if it is not synced.
    pub fn all(&self, scope: &Scope) -> impl Iterator<Item = &Object> {
        self.scopes
            .get(scope)
            .into_iter()
            .flat_map(|watched| watched.objects.values())
    }
}

impl ScopeCache {
    fn listed(&self, namespace: Option<&str>) -> Arc<[Object]> {
        let mut lists = self.lists.borrow_mut();
        let list = lists.entry(namespace.map(Box::from));
        let listed = list.or_insert_with(|| match namespace {
            None => self.objects.values().cloned().collect(),
            Some(namespace) => self.of_namespace(namespace).cloned().collect(),
        });
        listed.clone()
    }

    fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &Object> {
        let from = self.objects.range(ObjectKey::new(Some(namespace), "")..);
        let of_it = from.take_while(move |(place, _)| place.namespace.as_deref() == Some(namespace));
        of_it.map(|(_, object)| object)
    }

    fn apply(&mut self, scope: &Scope, object: Object) -> Option<Change> {
        let place = ObjectKey::from(&object);
        let stale = self
            .objects
            .get(&place)
            .is_some_and(|known| known.version() >= object.version());
        if stale || self.has_ended(&place, object.uid()) {
            return None;
        }
        self.lists.get_mut().clear();
        let before = self.objects.insert(place.clone(), object.clone());
        Some(Change {
            scope: scope.clone(),
            place,
            before,
            after: Some(object),
        })
    }

    fn delete(&mut self, scope: &Scope, object: &Object) -> Option<Change> {
        let place = ObjectKey::from(object);
        self.ended.remove(&(place.clone(), object.uid().to_owned()));
        let known = self.objects.get(&place)?;
        if known.uid() != object.uid() || known.version() > object.version() {
            return None;
        }
        Some(self.remove(scope, place))
    }

    fn remove(&mut self, scope: &Scope, place: ObjectKey) -> Change {
        self.lists.get_mut().clear();
        let before = self.objects.remove(&place);
        Change {
            scope: scope.clone(),
            place,
            before,
            after: None,
        }
    }

    fn has_ended(&self, place: &ObjectKey, uid: &str) -> bool {
        // Most scopes remember no ends. The first test spares them building a key.
        !self.ended.is_empty() && self.ended.contains(&(place.clone(), uid.to_owned()))
    }

    fn end(&mut self, scope: &Scope, place: ObjectKey, uid: &str) -> Option<Change> {
        let is_known = self.objects.get(&place).is_some_and(|known| known.uid() == uid);
        if is_known || self.ended.len() < UNSEEN {
            self.ended.insert((place.clone(), uid.to_owned()));
        }
        if !is_known {
            return None;
        }
        Some(self.remove(scope, place))
    }

    fn list(&mut self, scope: &Scope, objects: Vec<Object>, version: ResourceVersion) -> Vec<Change> {
        self.synced = true;
        self.watch_error = None;
        let listed: BTreeMap<ObjectKey, String> = objects
            .iter()
            .map(|o| (ObjectKey::from(o), o.uid().to_owned()))
            .collect();
        let gone: Vec<Object> = self
            .objects
            .iter()
            .filter(|(place, known)| {
                known.version() <= version && listed.get(place).is_none_or(|uid| uid != known.uid())
            })
            .map(|(_, known)| known.clone())
            .collect();
        let mut changes = Vec::new();
        for known in gone {
            changes.push(self.remove(scope, ObjectKey::from(&known)));
        }
        self.ended
            .retain(|(place, uid)| listed.get(place).is_some_and(|listed| listed == uid));
        let is_old = version < self.shown;
        for object in objects {
            if !is_old || !self.was_gone(&object) {
                changes.extend(self.apply(scope, object));
            }
        }
        changes
    }

    /// Whether the watch has shown this version before, and the end of the object since then.
    fn was_gone(&self, object: &Object) -> bool {
        object.version() <= self.shown && !self.objects.contains_key(&ObjectKey::from(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn scope() -> Scope {
        let kind = Kind {
            api_version: "v1".into(),
            kind: "Node".into(),
        };
        Scope {
            kind,
            namespace: None,
            name: None,
            node: None,
            fields: vec![],
        }
    }

    fn node(version: u64, extra: Value) -> Object {
        let mut metadata = json!({"name": "n", "uid": "u", "resourceVersion": version.to_string()});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        Object::new(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
    }

    fn cache() -> Cache {
        let mut cache = Cache::default();
        cache.open(&scope());
        cache
    }

    fn version(cache: &Cache) -> Option<u64> {
        match cache.get(&scope(), &ObjectKey::new(None, "n")) {
            Lookup::Known(object) => object.map(|o| o.version().0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_objects_of_a_namespace_are_those_that_stand_in_it() {
        let mut cache = cache();
        let at = |namespace: Option<&str>, name: &str| {
            Object::new(
                json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}}),
            )
        };
        let objects = vec![
            at(None, "cluster"),
            at(Some("a"), "a-1"),
            at(Some("b"), "b-2"),
            at(Some("b"), "b-1"),
            at(Some("b2"), "other"),
        ];
        let version = ResourceVersion(1);
        cache.observe(&scope(), WatchEvent::Listed { objects, version });
        for (namespace, expected) in [
            (None, &["cluster", "a-1", "b-1", "b-2", "other"][..]),
            (Some("b"), &["b-1", "b-2"]),
            (Some("c"), &[]),
        ] {
            let Lookup::Known(found) = cache.list(&scope(), namespace) else {
                panic!("the watch has listed");
            };
            let names: Vec<&str> = found.iter().map(Object::name).collect();
            assert_eq!(names, expected, "{namespace:?}");
        }
    }

    #[test]
    fn all_who_ask_for_a_list_share_it_until_something_changes() {
        let mut cache = cache();
        let listed = |cache: &Cache| match cache.list(&scope(), None) {
            Lookup::Known(listed) => listed,
            other => panic!("{other:?}"),
        };
        let (objects, version) = (vec![node(1, json!({}))], ResourceVersion(1));
        cache.observe(&scope(), WatchEvent::Listed { objects, version });
        let first = listed(&cache);
        assert!(Arc::ptr_eq(&first, &listed(&cache)));
        cache.observe(&scope(), WatchEvent::Applied(node(2, json!({}))));
        let second = listed(&cache);
        assert_eq!([&first, &second].map(|listed| listed[0].version().0), [1, 2]);
        cache.observe(&scope(), WatchEvent::Deleted(node(3, json!({}))));
        assert!(listed(&cache).is_empty());
    }

    #[test]
    fn a_list_that_is_older_than_what_was_shown_brings_nothing_back() {
        let mut cache = cache();
        let listed = |version| WatchEvent::Listed {
            objects: vec![node(1, json!({}))],
            version: ResourceVersion(version),
        };
        cache.observe(&scope(), listed(1));
        cache.observe(&scope(), WatchEvent::Deleted(node(3, json!({}))));
        assert!(cache.observe(&scope(), listed(2)).is_empty());
        let again = WatchEvent::Applied(node(1, json!({})));
        assert!(cache.observe(&scope(), again).is_empty());
        assert_eq!(version(&cache), None);
    }

    #[test]
    fn a_watch_that_lags_an_own_write_changes_nothing() {
        let mut cache = cache();
        cache.observe(
            &scope(),
            WatchEvent::Listed {
                objects: vec![node(1, json!({}))],
                version: ResourceVersion(1),
            },
        );
        assert_eq!(cache.own_write(&node(5, json!({}))).len(), 1);
        assert!(
            cache
                .observe(&scope(), WatchEvent::Applied(node(3, json!({}))))
                .is_empty()
        );
        assert!(
            cache
                .observe(&scope(), WatchEvent::Applied(node(5, json!({}))))
                .is_empty()
        );
        assert_eq!(version(&cache), Some(5));
        let old = WatchEvent::Listed {
            objects: vec![],
            version: ResourceVersion(4),
        };
        assert!(cache.observe(&scope(), old).is_empty());
        assert_eq!(version(&cache), Some(5));
    }

    #[test]
    fn the_end_of_one_object_is_not_that_of_another_whose_uid_was_named() {
        let mut cache = cache();
        let listed = WatchEvent::Listed {
            objects: vec![node(3, json!({}))],
            version: ResourceVersion(3),
        };
        cache.observe(&scope(), listed);
        let mut elsewhere = node(3, json!({})).reference();
        elsewhere.name = "m".into();
        assert!(cache.own_delete(&elsewhere, "u").is_empty());
        let mut another = node(3, json!({})).reference();
        another.kind.kind = "Machine".into();
        assert!(cache.own_delete(&another, "u").is_empty());
        cache.observe(&scope(), WatchEvent::Applied(node(5, json!({}))));
        assert_eq!(version(&cache), Some(5));
        for (version, gone) in [(4, 0), (5, 1)] {
            let deleted = WatchEvent::Deleted(node(version, json!({})));
            assert_eq!(cache.observe(&scope(), deleted).len(), gone, "{version}");
        }
    }

    #[test]
    fn a_late_answer_does_not_bring_back_what_a_watch_showed_gone() {
        let mut cache = cache();
        cache.observe(&scope(), WatchEvent::Applied(node(3, json!({}))));
        cache.observe(&scope(), WatchEvent::Deleted(node(7, json!({}))));
        assert!(cache.own_write(&node(5, json!({}))).is_empty());
        assert!(cache.newest(&scope().kind, &ObjectKey::new(None, "n")).is_none());
        // What was written later than anything shown is another matter.
        assert_eq!(cache.own_write(&node(9, json!({}))).len(), 1);
    }

    #[test]
    fn an_object_ended_by_an_own_write_does_not_come_back() {
        let mut cache = cache();
        let deleting = json!({"deletionTimestamp": "t", "finalizers": ["f"]});
        cache.observe(
            &scope(),
            WatchEvent::Listed {
                objects: vec![node(1, deleting.clone())],
                version: ResourceVersion(1),
            },
        );
        cache.own_write(&node(8, deleting.clone()));
        assert_eq!(version(&cache), Some(8), "its finalizer holds it");
        cache.own_write(&node(9, json!({"deletionTimestamp": "t"})));
        assert_eq!(version(&cache), None);
        assert!(
            cache
                .observe(&scope(), WatchEvent::Applied(node(8, deleting)))
                .is_empty()
        );
        assert_eq!(version(&cache), None);
    }

    #[test]
    fn not_found_is_said_only_by_a_synced_watch() {
        let mut cache = cache();
        assert_eq!(cache.get(&scope(), &ObjectKey::new(None, "n")), Lookup::Unsynced);
        cache.observe(
            &scope(),
            WatchEvent::Listed {
                objects: vec![],
                version: ResourceVersion(1),
            },
        );
        assert_eq!(
            cache.get(&scope(), &ObjectKey::new(None, "n")),
            Lookup::Known(None)
        );
        assert_eq!(cache.watch_error(&scope()), None);
        cache.observe(&scope(), WatchEvent::Failed("cut".into()));
        assert_eq!(cache.get(&scope(), &ObjectKey::new(None, "n")), Lookup::Unsynced);
        assert_eq!(cache.watch_error(&scope()), Some("cut"));
    }

    #[test]
    fn what_this_host_wrote_enters_the_scopes_that_cover_it_and_no_others() {
        let pod = Object::new(
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n"},
            "metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "1"}}),
        );
        let of = |namespace: Option<&str>, name: Option<&str>, node: Option<&str>| Scope {
            kind: pod.kind(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            node: node.map(str::to_owned),
            fields: vec![],
        };
        for (scope, covers) in [
            (of(None, None, None), true),
            (of(Some("a"), Some("p"), Some("n")), true),
            (of(Some("b"), None, None), false),
            (of(None, Some("q"), None), false),
            (of(None, None, Some("m")), false),
            (scope(), false),
        ] {
            let mut cache = Cache::default();
            cache.open(&scope);
            assert_eq!(cache.own_write(&pod).len(), usize::from(covers), "{scope:?}");
            let gone = cache.own_delete(&pod.reference(), "u");
            assert_eq!(gone.len(), usize::from(covers), "{scope:?}");
        }
    }

    #[test]
    fn a_scope_is_idle_from_when_nobody_depends_on_it_any_more() {
        let mut cache = cache();
        for (now, depended_on, idle) in [(10, false, 0), (15, false, 5), (16, true, 0), (20, false, 0)] {
            let idle = Duration::from_millis(idle);
            assert_eq!(cache.idle(&scope(), Boot(now), depended_on), idle, "{now}");
        }
        assert!(!cache.open(&scope()), "it is open");
        assert_eq!(cache.idle(&scope(), Boot(30), false), Duration::ZERO);
    }

    #[test]
    fn the_scope_that_is_furthest_says_how_an_object_is_and_of_two_the_one_with_all_fields() {
        let narrow = Scope {
            fields: vec!["spec.size".into()],
            ..scope()
        };
        let mut cache = cache();
        cache.open(&narrow);
        let show = |cache: &mut Cache, scope: &Scope, version| {
            let object = node(version, json!({"annotations": {"a": "b"}}));
            cache.observe(scope, WatchEvent::Applied(scope.trimmed(&object)));
        };
        let newest = |cache: &Cache| {
            let object = cache.newest(&scope().kind, &ObjectKey::new(None, "n"))?;
            Some((object.version().0, object.at("metadata.annotations").is_some()))
        };
        assert_eq!(newest(&cache), None);
        show(&mut cache, &scope(), 3);
        show(&mut cache, &narrow, 3);
        assert_eq!(newest(&cache), Some((3, true)));
        show(&mut cache, &narrow, 4);
        assert_eq!(newest(&cache), Some((4, false)));
    }

    #[test]
    fn of_ends_that_were_never_shown_so_many_are_remembered_and_of_others_all() {
        let named = |number: usize| {
            let (name, uid) = (format!("n-{number}"), format!("u-{number}"));
            node(1, json!({"name": name, "uid": uid}))
        };
        let mut cache = cache();
        cache.observe(&scope(), WatchEvent::Applied(named(0)));
        for number in 1..UNSEEN + 9 {
            cache.own_delete(&named(number).reference(), named(number).uid());
        }
        let remembered = |cache: &Cache| cache.scopes[&scope()].ended.len();
        assert_eq!(remembered(&cache), UNSEEN);
        assert_eq!(cache.own_delete(&named(0).reference(), "u-0").len(), 1);
        assert_eq!(remembered(&cache), UNSEEN + 1);
        let mut shows = |object| cache.observe(&scope(), WatchEvent::Applied(object)).len();
        assert_eq!((shows(named(1)), shows(node(2, json!({})))), (0, 1));
    }
}
