//! The publication plan: what a conclusion's patch means for the object as it stands now.
//!
//! A patch is read against the snapshot that the pass saw. `finalizers`, `ownerReferences`, `conditions` and `taints`
//! merge by key, so that two writers of different elements do not meet; a list whose elements have no key, or one twice,
//! is a value like any other. Everything goes out as JSON merge patches with
//! `metadata.uid` and `metadata.resourceVersion` as the precondition.

use std::borrow::Cow;
use std::collections::BTreeSet;

pub use polity_kube_rules::merge_patch::apply;
use serde_json::{Map, Value, json};

use crate::object::Object;
use crate::tree::Tree;

/// The parts of a publication, in the order they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Metadata and spec, without the removal of finalizers.
    Main,
    /// The status subresource.
    Status,
    /// Removal of finalizers.
    Finalizer,
}

/// What a pass wants changed on its primary.
#[derive(Clone, Debug)]
pub struct Edits {
    snapshot: Object,
    patch: Value,
}

/// A dotted path, list elements by key in brackets: `status.conditions[Ready]`.
pub type EditPath = String;

impl Edits {
    /// A merge patch against this snapshot.
    pub fn new(snapshot: Object, patch: Value) -> Self {
        Edits { snapshot, patch }
    }

    /// The object with these edits on top of what stands now.
    pub fn onto(&self, current: &Value) -> Value {
        let mut desired = current.clone();
        merge("", &self.patch, Some(self.snapshot.value()), &mut desired);
        desired
    }

    /// The values this writes, element by element, and whether it removes them.
    pub fn paths(&self) -> Vec<(EditPath, bool)> {
        let mut paths = Vec::new();
        leaves("", &self.patch, Some(self.snapshot.value()), &mut |leaf| {
            paths.push((leaf.path, leaf.wanted.is_none()))
        });
        paths
    }

    /// Edited values that somebody else has changed since the snapshot.
    pub fn conflicts(&self, fresh: &Value) -> Vec<EditPath> {
        let mut conflicts = Vec::new();
        leaves("", &self.patch, Some(self.snapshot.value()), &mut |leaf| {
            let now = leaf.find(fresh);
            if now != leaf.base && now != leaf.wanted.as_deref() {
                conflicts.push(leaf.path);
            }
        });
        conflicts
    }

    /// The same edits without those whose top field (`status.phase`) holds one of these paths.
    pub fn without(mut self, paths: &[EditPath]) -> Self {
        for path in paths {
            remove(&mut self.patch, path.split('[').next().unwrap_or(path));
        }
        self
    }
}

/// One edited value.
struct Leaf<'a> {
    path: EditPath,
    list: Option<(String, String)>,
    base: Option<&'a Value>,
    /// Owned where it is made of what the patch says and what stood there.
    wanted: Option<Cow<'a, Value>>,
}

impl Leaf<'_> {
    /// This value in another version of the object.
    fn find<'b>(&self, object: &'b Value) -> Option<&'b Value> {
        match &self.list {
            None => reach(object, &self.path).value(),
            Some((path, key)) => {
                let name = path.rsplit('.').next().unwrap_or(path);
                match reach(object, path) {
                    Reached::There(Value::Array(elements)) => {
                        elements.iter().find(|e| element_key(name, e) == *key)
                    }
                    other => other.value(),
                }
            }
        }
    }
}

/// How far a path leads.
enum Reached<'a> {
    /// This stands there.
    There(&'a Value),
    /// This is no object, and has to go before anything can stand below it.
    InTheWay(&'a Value),
    Nothing,
}

impl<'a> Reached<'a> {
    /// What stands there, or in the way.
    fn value(self) -> Option<&'a Value> {
        match self {
            Reached::There(value) | Reached::InTheWay(value) => Some(value),
            Reached::Nothing => None,
        }
    }
}

fn reach<'a>(mut value: &'a Value, path: &str) -> Reached<'a> {
    for part in segments(path) {
        match value {
            Value::Object(fields) => match fields.get(&part) {
                Some(field) => value = field,
                None => return Reached::Nothing,
            },
            Value::Null => return Reached::Nothing,
            other => return Reached::InTheWay(other),
        }
    }
    match value {
        Value::Null => Reached::Nothing,
        value => Reached::There(value),
    }
}

/// Keys of annotations and labels hold dots themselves; they are escaped as `\.` in paths.
fn segments(path: &str) -> Vec<String> {
    let (mut parts, mut part, mut chars) = (Vec::new(), String::new(), path.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => part.extend(chars.next()),
            '.' => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    parts
}

fn join(path: &str, name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('.', "\\.");
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

/// Whether lists of this name merge by key.
fn is_keyed(name: &str) -> bool {
    matches!(name, "finalizers" | "ownerReferences" | "conditions" | "taints")
}

fn element_key(list: &str, element: &Value) -> String {
    let field = |name: &str| element[name].as_str().unwrap_or_default();
    match list {
        "conditions" => field("type").to_owned(),
        "taints" if field("key").is_empty() => String::new(),
        "taints" => format!("{}:{}", field("key"), field("effect")),
        "ownerReferences" => field("uid").to_owned(),
        _ => element.as_str().unwrap_or_default().to_owned(),
    }
}

/// The elements of a list by key; none where it is no list that merges by key: by its name, or because an element has
/// no key or that of another. What is absent or null has no elements.
fn keyed<'a>(list: &str, value: Option<&'a Value>) -> Option<Vec<(String, &'a Value)>> {
    if !is_keyed(list) {
        return None;
    }
    let elements: Vec<(String, &Value)> = match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(elements)) => elements
            .iter()
            .map(|element| (element_key(list, element), element))
            .collect(),
        Some(_) => return None,
    };
    let keys: BTreeSet<&str> = elements.iter().map(|(key, _)| key.as_str()).collect();
    (keys.len() == elements.len() && !keys.contains("")).then_some(elements)
}

fn find<'a>(all: &[(String, &'a Value)], key: &str) -> Option<&'a Value> {
    all.iter().find(|(k, _)| k == key).map(|(_, element)| *element)
}

fn leaves<'a>(path: &str, patch: &'a Value, base: Option<&'a Value>, found: &mut dyn FnMut(Leaf<'a>)) {
    let Value::Object(fields) = patch else { return };
    for (name, wanted) in fields {
        let path = join(path, name);
        let base = base.and_then(|b| b.get(name)).filter(|b| !b.is_null());
        if let (Some(old), Some(new)) = (keyed(name, base), keyed(name, Some(wanted))) {
            let changed = new
                .iter()
                .filter(|(key, element)| find(&old, key) != Some(element));
            let removed = old.iter().filter(|(key, _)| find(&new, key).is_none());
            for (key, _) in changed.chain(removed) {
                found(Leaf {
                    path: format!("{path}[{key}]"),
                    list: Some((path.clone(), key.clone())),
                    base: find(&old, key),
                    wanted: find(&new, key).map(Cow::Borrowed),
                });
            }
            continue;
        }
        let stands_in_the_way = base.filter(|base| !base.is_object());
        let wanted = match (wanted, stands_in_the_way) {
            (Value::Object(inner), None) if !inner.is_empty() => {
                leaves(&path, wanted, base, found);
                continue;
            }
            // It replaces the value as a whole, by what is left of the object without what it removes; and it edits what
            // it says below.
            (Value::Object(_), Some(value)) => {
                let base = Some(value);
                leaves(&path, wanted, None, &mut |leaf| found(Leaf { base, ..leaf }));
                let mut replaced = value.clone();
                merge(name, wanted, base, &mut replaced);
                Some(Cow::Owned(replaced))
            }
            (Value::Null, _) => None,
            (wanted, _) => Some(Cow::Borrowed(wanted)),
        };
        found(Leaf {
            path,
            list: None,
            base,
            wanted,
        });
    }
}

fn merge(name: &str, patch: &Value, base: Option<&Value>, current: &mut Value) {
    let lists = (
        keyed(name, base),
        keyed(name, Some(patch)),
        keyed(name, Some(current)),
    );
    if let (Some(old), Some(new), Some(held)) = lists {
        *current = merged_list(&old, &new, &held);
        return;
    }
    let Value::Object(fields) = patch else {
        *current = patch.clone();
        return;
    };
    if !current.is_object() {
        *current = Value::Object(Map::new());
    }
    let Value::Object(target) = current else { return };
    for (name, wanted) in fields {
        let base = base.and_then(|b| b.get(name));
        let is_removed = wanted.is_null() && (!is_keyed(name) || !target.contains_key(name));
        if is_removed {
            target.remove(name);
            continue;
        }
        let stood_null = target.get(name).is_some_and(Value::is_null);
        let was_absent = stood_null || !target.contains_key(name);
        merge(name, wanted, base, target.entry(name).or_insert(Value::Null));
        if was_absent && !is_value(name, wanted) && target.get(name).is_none_or(is_empty) {
            match stood_null {
                true => target.insert(name.clone(), Value::Null),
                false => target.remove(name),
            };
        }
        // Of a list that was removed only what others added since is left.
        if wanted.is_null() && target.get(name).is_none_or(is_nothing) {
            target.remove(name);
        }
    }
}

/// Whether a patch puts one value at a name, rather than elements or fields one by one: those that are none edit nothing.
fn is_value(name: &str, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => fields.is_empty(),
        _ => keyed(name, Some(wanted)).is_none(),
    }
}

fn is_empty(value: &Value) -> bool {
    is_nothing(value) || value.as_object().is_some_and(Map::is_empty)
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// What is held, without what was removed from `old` to `new`, and with what was changed or added.
fn merged_list(old: &[(String, &Value)], new: &[(String, &Value)], held: &[(String, &Value)]) -> Value {
    let mut merged: Vec<Value> = Vec::new();
    for (key, element) in held {
        match (find(old, key), find(new, key)) {
            (Some(_), None) => {}
            (before, Some(after)) if before != Some(after) => merged.push(after.clone()),
            _ => merged.push((*element).clone()),
        }
    }
    for (key, element) in new {
        if find(held, key).is_none() && find(old, key) != Some(element) {
            merged.push((*element).clone());
        }
    }
    Value::Array(merged)
}

fn remove(patch: &mut Value, path: &str) {
    remove_segments(patch, &segments(path));
}

/// What holds nothing afterwards goes, too: an empty object would be an edit.
fn remove_segments(patch: &mut Value, path: &[String]) {
    let (Value::Object(fields), Some((first, rest))) = (patch, path.split_first()) else {
        return;
    };
    let is_gone = match (fields.get_mut(first), rest) {
        (None, _) => false,
        (Some(_), []) => true,
        (Some(inner), rest) => {
            remove_segments(inner, rest);
            inner.as_object().is_some_and(Map::is_empty)
        }
    };
    if is_gone {
        fields.remove(first);
    }
}

/// The merge patch that turns one value into another; none if they are equal.
pub fn diff(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(a), Value::Object(b)) => {
            let mut patch = Map::new();
            for (name, old) in a {
                match b.get(name) {
                    None => {
                        patch.insert(name.clone(), Value::Null);
                    }
                    Some(new) => {
                        if let Some(inner) = diff(old, new) {
                            patch.insert(name.clone(), inner);
                        }
                    }
                }
            }
            for (name, new) in b.iter().filter(|(name, _)| !a.contains_key(*name)) {
                patch.insert(name.clone(), new.clone());
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (a, b) if a == b => None,
        (_, b) => Some(b.clone()),
    }
}

/// The patch that one part of a publication needs, precondition included; none if that part stands already.
pub fn write(part: Part, current: &Object, desired: &Value) -> Option<Value> {
    let mut patch = Tree::new(change(part, current.value(), desired)?);
    patch.set(&["metadata", "uid"], current.uid());
    patch.set(&["metadata", "resourceVersion"], current.version().0.to_string());
    Some(patch.into_value())
}

/// The merge patch of one part, without any precondition; none if that part stands already.
pub fn change(part: Part, now: &Value, desired: &Value) -> Option<Value> {
    match part {
        Part::Main => {
            let mut wanted = Tree::new(desired.clone());
            match now.get("status") {
                Some(status) => wanted.set(&["status"], status.clone()),
                None => wanted.remove(&["status"]),
            }
            let kept = kept_finalizers(now, desired);
            if now["metadata"]["finalizers"].is_array() || !kept.is_empty() {
                wanted.set(&["metadata", "finalizers"], kept);
            }
            diff(now, wanted.value())
        }
        Part::Status => {
            let empty = Value::Object(Map::new());
            diff(
                now.get("status").unwrap_or(&empty),
                desired.get("status").unwrap_or(&empty),
            )
            .map(|status| json!({"status": status}))
        }
        Part::Finalizer => {
            let (held, wanted) = (finalizers(now), finalizers(desired));
            let kept: Vec<&str> = held.iter().copied().filter(|f| wanted.contains(f)).collect();
            (kept.len() < held.len()).then(|| json!({"metadata": {"finalizers": kept}}))
        }
    }
}

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What is held now, and what is to be added.
fn kept_finalizers(now: &Value, desired: &Value) -> Vec<Value> {
    let held = finalizers(now);
    let added = finalizers(desired);
    let new = added.iter().filter(|f| !held.contains(f));
    held.iter().chain(new).map(|f| json!(f)).collect()
}

/// What of a written part the API server does not show: paths whose value was dropped, defaulted or changed by it.
/// `object` is its answer, `desired` what it was to hold.
pub fn not_kept(part: Part, object: &Object, desired: &Value) -> Vec<EditPath> {
    let mut paths = Vec::new();
    if let Some(patch) = change(part, object.value(), desired) {
        leaves("", &patch, Some(object.value()), &mut |leaf| {
            let as_number = |value: Option<&Value>| value.and_then(Value::as_f64);
            // `1.0` and `1` are one number.
            let wanted = as_number(leaf.wanted.as_deref());
            let same = wanted.is_some() && as_number(leaf.base) == wanted;
            if !same {
                paths.push(leaf.path);
            }
        });
    }
    paths
}

/// What is wrong with the shape of a merge patch: where the host, or an API server, wants an object or a list of a
/// certain form, a policy must not put anything else. `removes` says whether null may remove such a place.
pub fn misshapen(patch: &Value, removes: bool) -> Option<String> {
    if !patch.is_object() {
        return Some("it is not a JSON object".into());
    }
    // A path has no way to say it, and no kind has such a field.
    if has_nameless(patch) {
        return Some("a field has an empty name".into());
    }
    let wrong = |path: &[&str], fits: &dyn Fn(&Value) -> bool, wanted: &str| {
        let value = path.iter().try_fold(patch, |value, field| value.get(*field))?;
        let is_removed = removes && value.is_null() && path != ["metadata"];
        (!is_removed && !fits(value)).then(|| format!("{} is not {wanted}", path.join(".")))
    };
    let texts = |value: &Value| {
        let fields = value.as_object();
        fields.is_some_and(|fields| fields.values().all(|v| v.is_string() || v.is_null()))
    };
    let list =
        |name: &'static str| move |value: &Value| value.is_array() && keyed(name, Some(value)).is_some();
    wrong(&["metadata"], &Value::is_object, "an object")
        .or_else(|| wrong(&["metadata", "labels"], &texts, "an object of texts"))
        .or_else(|| wrong(&["metadata", "annotations"], &texts, "an object of texts"))
        .or_else(|| {
            let wanted = "a list of different texts";
            wrong(&["metadata", "finalizers"], &list("finalizers"), wanted)
        })
        .or_else(|| {
            let wanted = "a list of objects with different uids";
            wrong(&["metadata", "ownerReferences"], &list("ownerReferences"), wanted)
        })
        .or_else(|| wrong(&["status"], &Value::is_object, "an object"))
        .or_else(|| {
            let wanted = "a list of objects with different types";
            wrong(&["status", "conditions"], &list("conditions"), wanted)
        })
}

fn has_nameless(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name.is_empty() || has_nameless(value)),
        Value::Array(items) => items.iter().any(has_nameless),
        _ => false,
    }
}

/// Combines the patches of the identity and the lifecycle, which declared that they write different paths.
pub fn combine(a: &Value, b: &Value, snapshot: &Value) -> Value {
    let mut both = snapshot.clone();
    merge("", a, Some(snapshot), &mut both);
    merge("", b, Some(snapshot), &mut both);
    diff(snapshot, &both).unwrap_or_else(|| json!({}))
}

/// Whether a declared path (`status`, `status.conditions[Ready]`) covers an edited one.
pub fn declares(declared: &str, edited: &str) -> bool {
    edited
        .strip_prefix(declared)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(version: &str, rest: Value) -> Object {
        let mut value = json!({"kind": "Machine", "metadata": {"name": "m", "uid": "u",
            "resourceVersion": version, "finalizers": ["a", "f"]}, "spec": {"x": 1}});
        merge("", &rest, None, &mut value);
        Object::new(value)
    }

    #[test]
    fn a_patch_without_an_edited_value_changes_nothing() {
        let mut now = machine("1", json!({})).value().clone();
        if let Some(fields) = now.as_object_mut() {
            fields.insert("none".into(), Value::Null);
        }
        let now = Object::new(now);
        for patch in [
            json!({"metadata": {"ownerReferences": []}}),
            json!({"status": {"conditions": []}}),
            json!({"spec": {"node": {"taints": []}}}),
            json!({"metadata": {"finalizers": ["a", "f"]}}),
            json!({"none": {"conditions": []}}),
        ] {
            let edits = Edits::new(now.clone(), patch);
            assert_eq!(edits.paths(), []);
            assert_eq!(edits.onto(now.value()), *now.value());
        }
        let edits = Edits::new(now.clone(), json!({"spec": {"empty": {}, "list": []}}));
        assert_eq!(edits.paths().len(), 2);
        assert_eq!(
            edits.onto(now.value())["spec"],
            json!({"x": 1, "empty": {}, "list": []})
        );
    }

    #[test]
    fn an_object_that_replaces_another_value_is_an_edit_of_it() {
        let now = machine("1", json!({}));
        for inner in [json!({"conditions": []}), json!({"y": null}), json!({"y": 2})] {
            let edits = Edits::new(now.clone(), json!({"spec": {"x": inner}}));
            assert!(edits.paths().contains(&("spec.x".to_owned(), false)), "{inner}");
            let written = edits.onto(now.value());
            assert!(written["spec"]["x"].is_object());
            assert_eq!(edits.conflicts(now.value()), Vec::<EditPath>::new());
            assert_eq!(
                edits.conflicts(&written),
                Vec::<EditPath>::new(),
                "it stands already"
            );
            let theirs = edits.conflicts(machine("2", json!({"spec": {"x": 7}})).value());
            assert!(theirs.contains(&"spec.x".to_owned()), "{theirs:?}");
        }
        let edits = Edits::new(now.clone(), json!({"spec": {"x": {"y": 2, "z": null}}}));
        let paths = ["spec.x.y", "spec.x.z", "spec.x"].map(str::to_owned);
        assert_eq!(
            edits.paths(),
            paths.map(|path| (path.clone(), path.ends_with('z'))),
            "what it says below counts, too"
        );
        // Somebody put a value where the snapshot had none: it is not replaced unseen.
        let edits = Edits::new(
            now,
            json!({"spec": {"new": {"inner": 1}, "taints": [{"key": "a", "effect": "b"}]}}),
        );
        let theirs = machine("2", json!({"spec": {"new": 5, "taints": "x"}}));
        assert_eq!(
            edits.conflicts(theirs.value()),
            ["spec.new.inner", "spec.taints[a:b]"]
        );
    }

    #[test]
    fn parts_are_written_one_after_another_and_each_only_if_needed() {
        let now = machine("1", json!({}));
        let edits = Edits::new(
            now.clone(),
            json!({"metadata": {"finalizers": ["a"], "labels": {"l": "1"}}, "status": {"phase": "Gone"}}),
        );
        let desired = edits.onto(now.value());
        assert_eq!(
            write(Part::Main, &now, &desired),
            Some(json!({"metadata": {"labels": {"l": "1"}, "uid": "u", "resourceVersion": "1"}}))
        );
        assert_eq!(
            write(Part::Status, &now, &desired),
            Some(json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "status": {"phase": "Gone"}}))
        );
        assert_eq!(
            write(Part::Finalizer, &now, &desired),
            Some(json!({"metadata": {"finalizers": ["a"], "uid": "u", "resourceVersion": "1"}}))
        );
        let nothing = Edits::new(now.clone(), json!({})).onto(now.value());
        for part in [Part::Main, Part::Status, Part::Finalizer] {
            assert_eq!(write(part, &now, &nothing), None);
        }
    }

    #[test]
    fn conditions_of_other_writers_survive() {
        let condition = |t: &str, s: &str| json!({"type": t, "status": s});
        let before = machine(
            "1",
            json!({"status": {"conditions": [condition("Ready", "False")]}}),
        );
        let edits = Edits::new(
            before,
            json!({"status": {"conditions": [condition("Ready", "True"), condition("New", "True")]}}),
        );
        let fresh = machine(
            "2",
            json!({"status": {"conditions": [condition("Ready", "False"), condition("Other", "True")]}}),
        );
        assert!(edits.conflicts(fresh.value()).is_empty());
        assert_eq!(
            edits.onto(fresh.value())["status"]["conditions"],
            json!([
                condition("Ready", "True"),
                condition("Other", "True"),
                condition("New", "True")
            ])
        );
    }

    #[test]
    fn a_list_without_keys_is_a_value_like_any_other() {
        let before = machine(
            "1",
            json!({"spec": {"conditions": [1, 2], "taints": [{"key": "a"}, {"key": "a"}]}}),
        );
        let edits = Edits::new(
            before.clone(),
            json!({"spec": {"conditions": [3, 3], "taints": null}}),
        );
        let after = edits.onto(before.value());
        assert_eq!(after["spec"], json!({"x": 1, "conditions": [3, 3]}));
        let paths = edits.paths();
        assert_eq!(
            paths,
            [
                ("spec.conditions".to_owned(), false),
                ("spec.taints".to_owned(), true)
            ]
        );
    }

    #[test]
    fn a_list_that_is_removed_keeps_what_others_added_since() {
        let edits = Edits::new(machine("1", json!({})), json!({"metadata": {"finalizers": null}}));
        let paths: Vec<String> = edits.paths().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["metadata.finalizers[a]", "metadata.finalizers[f]"]);
        let fresh = machine("2", json!({"metadata": {"finalizers": ["a", "f", "theirs"]}}));
        assert_eq!(
            edits.onto(fresh.value())["metadata"]["finalizers"],
            json!(["theirs"])
        );
        let gone = edits.onto(machine("1", json!({})).value());
        assert_eq!(gone["metadata"].get("finalizers"), None);
    }

    #[test]
    fn a_patch_has_the_shape_that_its_readers_expect() {
        for (patch, wrong) in [
            (json!([]), Some("it is not a JSON object")),
            (
                json!({"": {"status": {"pending": 1}}}),
                Some("a field has an empty name"),
            ),
            (json!({"spec": [{"": 1}]}), Some("a field has an empty name")),
            (json!({"metadata": null}), Some("metadata is not an object")),
            (json!({"metadata": 7}), Some("metadata is not an object")),
            (
                json!({"metadata": {"finalizers": "x"}}),
                Some("metadata.finalizers is not a list of different texts"),
            ),
            (
                json!({"metadata": {"finalizers": ["x", "x"]}}),
                Some("metadata.finalizers is not a list of different texts"),
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                Some("metadata.labels is not an object of texts"),
            ),
            (json!({"status": "x"}), Some("status is not an object")),
            (
                json!({"status": {"conditions": {"type": "Ready"}}}),
                Some("status.conditions is not a list of objects with different types"),
            ),
            (
                json!({"status": {"conditions": ["Ready"]}}),
                Some("status.conditions is not a list of objects with different types"),
            ),
            (
                json!({"status": null, "metadata": {"finalizers": null, "labels": {"a": null}}}),
                None,
            ),
            (json!({"status": {"conditions": []}, "spec": 7}), None),
        ] {
            assert_eq!(misshapen(&patch, true).as_deref(), wrong, "{patch}");
        }
        assert!(misshapen(&json!({"status": null}), false).is_some());
    }

    #[test]
    fn what_an_api_server_does_not_keep_is_named_by_its_path() {
        let answer = machine("2", json!({"status": {"kept": 1, "defaulted": "theirs"}}));
        let desired = json!({"kind": "Machine", "metadata": answer.value()["metadata"], "spec": {"x": 1},
            "status": {"kept": 1.0, "defaulted": "ours", "pruned": {"a": 1}}});
        assert_eq!(
            not_kept(Part::Status, &answer, &desired),
            ["status.defaulted", "status.pruned.a"]
        );
        assert!(not_kept(Part::Main, &answer, &desired).is_empty());
    }

    #[test]
    fn an_edited_value_that_somebody_else_changed_is_a_conflict() {
        let edits = Edits::new(
            machine("1", json!({})),
            json!({"status": {"phase": "Up", "note": "n"}}),
        );
        let fresh = machine("2", json!({"status": {"phase": "Down"}}));
        assert_eq!(edits.conflicts(fresh.value()), ["status.phase"]);
        let rest = edits.without(&["status.phase".into()]);
        assert_eq!(
            rest.onto(fresh.value())["status"],
            json!({"phase": "Down", "note": "n"})
        );
    }
}
