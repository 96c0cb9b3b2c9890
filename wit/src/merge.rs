//! The meaning of a conclusion's patch for its object.
//!
//! A patch is a JSON merge patch against the snapshot that the pass saw. `finalizers`, `ownerReferences`,
//! `conditions` and `taints` merge by key, so that two writers of different elements do not conflict. A list
//! with an element that has no key, or the key of another element, is a value like any other. The host
//! publishes by these rules, and the test kit of the SDK uses them too.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A dotted path. Elements of lists are named by their key in brackets: `status.conditions[Ready]`.
pub type EditPath = String;

/// A value that a patch writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edited {
    /// The path of the value.
    pub path: EditPath,
    /// Whether the value is removed.
    pub removes: bool,
}

/// Applies a patch against `snapshot` to the present object.
pub fn onto(snapshot: &Value, patch: &Value, current: &Value) -> Value {
    let mut desired = current.clone();
    merge("", patch, Some(snapshot), &mut desired);
    desired
}

/// The values that a patch against `snapshot` writes, element by element.
pub fn edits(snapshot: &Value, patch: &Value) -> Vec<Edited> {
    let mut found = Vec::new();
    leaves("", patch, Some(snapshot), &mut |leaf| {
        let removes = leaf.wanted.is_none();
        found.push(Edited {
            path: leaf.path,
            removes,
        });
    });
    found
}

/// Whether a declared path (`status`, `status.conditions[Ready]`) covers an edited one.
pub fn declares(declared: &str, edited: &str) -> bool {
    edited
        .strip_prefix(declared)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// An edited value.
pub struct Leaf<'a> {
    /// The path of the value.
    pub path: EditPath,
    /// For an element of a list that merges by key: the path of the list, and its key.
    list: Option<(String, String)>,
    /// The value in the snapshot.
    pub base: Option<&'a Value>,
    /// The wanted value. It is owned if it is computed from the patch and the value in the snapshot.
    pub wanted: Option<Cow<'a, Value>>,
}

/// Another version of the object, in which edited values are looked up. The elements of one list follow each
/// other, so the list that was read last is kept.
pub struct Present<'a> {
    object: &'a Value,
    /// The path of that list, and its elements by key; of two with one key the first.
    list: Option<(String, BTreeMap<String, &'a Value>)>,
}

impl<'a> Present<'a> {
    /// A version of the object.
    pub fn new(object: &'a Value) -> Self {
        Present { object, list: None }
    }

    /// The value that an edit changes, as it is in this version.
    pub fn find(&mut self, leaf: &Leaf<'_>) -> Option<&'a Value> {
        let Some((path, key)) = &leaf.list else {
            return reach(self.object, &leaf.path).value();
        };
        if let Some((last, elements)) = &self.list
            && last == path
        {
            return elements.get(key).copied();
        }
        let elements = match reach(self.object, path) {
            Reached::There(Value::Array(elements)) => elements,
            other => return other.value(),
        };
        let name = path.rsplit('.').next().unwrap_or(path);
        let mut by_key = BTreeMap::new();
        for element in elements {
            by_key.entry(element_key(name, element)).or_insert(element);
        }
        let found = by_key.get(key).copied();
        self.list = Some((path.clone(), by_key));
        found
    }
}

/// Where a path leads in an object.
enum Reached<'a> {
    /// The value at the path.
    There(&'a Value),
    /// This value is not an object. It must go before anything can stand below it.
    InTheWay(&'a Value),
    Nothing,
}

impl<'a> Reached<'a> {
    /// The value, or the one that is in the way.
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

/// Splits a path. Keys of annotations and labels contain dots, which are escaped as `\.` in paths.
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

/// The elements of a list that merges by key. A patch may hold a hundred thousand of them, so nothing looks for
/// one among all.
struct Keyed<'a> {
    elements: Vec<(String, &'a Value)>,
    /// The places of the elements, sorted by their keys.
    by_key: Vec<usize>,
}

impl<'a> Keyed<'a> {
    /// `None` if the list does not merge by key: because of its name, or because an element has no key or the key
    /// of another element. An absent or null list has no elements.
    fn new(list: &str, value: Option<&'a Value>) -> Option<Self> {
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
        let mut by_key: Vec<usize> = (0..elements.len()).collect();
        by_key.sort_by_key(|place| elements[*place].0.as_str());
        let is_twice = by_key
            .windows(2)
            .any(|two| elements[two[0]].0 == elements[two[1]].0);
        let is_nameless = by_key.first().is_some_and(|first| elements[*first].0.is_empty());
        (!is_twice && !is_nameless).then_some(Keyed { elements, by_key })
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        let found = self
            .by_key
            .binary_search_by(|place| self.elements[*place].0.as_str().cmp(key));
        found.ok().map(|at| self.elements[self.by_key[at]].1)
    }
}

/// Whether a list merges by key: it has such a name, and each element has a key of its own. An absent or null list
/// has no elements.
pub fn merges_by_key(list: &str, value: Option<&Value>) -> bool {
    Keyed::new(list, value).is_some()
}

/// The most values that a patch may name. An object of the largest size that Kubernetes stores has a tenth of them
/// if it is real; each takes a host about a microsecond.
pub const VALUES: usize = 16_384;

/// How many values a patch names: elements of lists that merge by key, and whole values.
pub fn values(patch: &Value) -> usize {
    let of_field = |(name, value): (&String, &Value)| match value {
        Value::Array(elements) if is_keyed(name) => elements.len(),
        Value::Object(_) => values(value).max(1),
        _ => 1,
    };
    let fields = patch.as_object();
    fields.map_or(0, |fields| fields.iter().map(of_field).sum())
}

/// The values that a patch writes, each with its value in the snapshot and its wanted value.
pub fn leaves<'a>(path: &str, patch: &'a Value, base: Option<&'a Value>, found: &mut dyn FnMut(Leaf<'a>)) {
    let Value::Object(fields) = patch else { return };
    for (name, wanted) in fields {
        let path = join(path, name);
        let base = base.and_then(|b| b.get(name)).filter(|b| !b.is_null());
        if let (Some(old), Some(new)) = (Keyed::new(name, base), Keyed::new(name, Some(wanted))) {
            elements(&path, &old, &new, found);
            continue;
        }
        let stands_in_the_way = base.filter(|base| !base.is_object());
        let wanted = match (wanted, stands_in_the_way) {
            (Value::Object(inner), None) if !inner.is_empty() => {
                leaves(&path, wanted, base, found);
                continue;
            }
            // The patch replaces a value that is not an object by an object: that is one edit. The fields of
            // the new object are edits below it.
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

/// The elements of a list that are changed, added or removed.
fn elements<'a>(path: &str, old: &Keyed<'a>, new: &Keyed<'a>, found: &mut dyn FnMut(Leaf<'a>)) {
    let changed = new
        .elements
        .iter()
        .filter(|(key, element)| old.get(key) != Some(element));
    let removed = old.elements.iter().filter(|(key, _)| new.get(key).is_none());
    for (key, _) in changed.chain(removed) {
        found(Leaf {
            path: format!("{path}[{key}]"),
            list: Some((path.to_owned(), key.clone())),
            base: old.get(key),
            wanted: new.get(key).map(Cow::Borrowed),
        });
    }
}

/// Merges a patch against `base` into the present value. `name` is the name of the field; it decides which
/// lists merge by key.
pub fn merge(name: &str, patch: &Value, base: Option<&Value>, current: &mut Value) {
    let lists = (
        Keyed::new(name, base),
        Keyed::new(name, Some(patch)),
        Keyed::new(name, Some(current)),
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
            if stood_null {
                target.insert(name.clone(), Value::Null)
            } else {
                target.remove(name)
            };
        }
        // The list was removed. Only elements that others added since are left.
        if wanted.is_null() && target.get(name).is_none_or(is_nothing) {
            target.remove(name);
        }
    }
}

/// Whether a patch writes one whole value at a name, and not elements or fields one by one. An empty object
/// edits nothing.
fn is_value(name: &str, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => fields.is_empty(),
        _ => !merges_by_key(name, Some(wanted)),
    }
}

fn is_empty(value: &Value) -> bool {
    is_nothing(value) || value.as_object().is_some_and(Map::is_empty)
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// The held elements, without those that were removed from `old` to `new`, and with those that were changed
/// or added.
fn merged_list(old: &Keyed<'_>, new: &Keyed<'_>, held: &Keyed<'_>) -> Value {
    let mut merged: Vec<Value> = Vec::new();
    for (key, element) in &held.elements {
        match (old.get(key), new.get(key)) {
            (Some(_), None) => {}
            (before, Some(after)) if before != Some(after) => merged.push(after.clone()),
            _ => merged.push((*element).clone()),
        }
    }
    for (key, element) in &new.elements {
        if held.get(key).is_none() && old.get(key) != Some(element) {
            merged.push((*element).clone());
        }
    }
    Value::Array(merged)
}

/// Removes the value at a path from a patch.
pub fn remove(patch: &mut Value, path: &str) {
    remove_segments(patch, &segments(path));
}

/// Also removes objects that become empty, because an empty object would be an edit.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_with_keys_merge_by_key_and_other_lists_are_values() {
        let snapshot = json!({
            "metadata": {"finalizers": ["a", "b"]},
            "status": {"list": [1, 2], "conditions": [{"type": "Ready", "status": "False"}]},
        });
        let mut current = snapshot.clone();
        current["metadata"]["finalizers"] = json!(["a", "b", "theirs"]);
        let patch = json!({
            "metadata": {"finalizers": ["b"]},
            "status": {"list": [3], "conditions": [{"type": "Ready", "status": "True"}, {"type": "New"}]},
        });
        assert_eq!(
            onto(&snapshot, &patch, &current),
            json!({
                "metadata": {"finalizers": ["b", "theirs"]},
                "status": {"list": [3], "conditions": [{"type": "Ready", "status": "True"}, {"type": "New"}]},
            })
        );
        let edits = edits(&snapshot, &patch);
        let shown: Vec<_> = edits.iter().map(|e| (e.path.as_str(), e.removes)).collect();
        assert_eq!(
            shown,
            [
                ("metadata.finalizers[a]", true),
                ("status.conditions[Ready]", false),
                ("status.conditions[New]", false),
                ("status.list", false),
            ]
        );
    }

    #[test]
    fn a_list_of_a_hundred_thousand_elements_is_read_without_looking_for_each_among_all() {
        // Looked for one by one, these would take ten thousand million comparisons.
        let names =
            |from: usize| -> Vec<String> { (from..from + 100_000).map(|n| format!("f{n}")).collect() };
        let snapshot = json!({"metadata": {"finalizers": names(0)}});
        let patch = json!({"metadata": {"finalizers": names(50_000)}});
        let found = edits(&snapshot, &patch);
        assert_eq!(found.iter().filter(|edit| edit.removes).count(), 50_000);
        assert_eq!(found.len(), 100_000);
        let desired = onto(&snapshot, &patch, &snapshot);
        assert_eq!(desired["metadata"]["finalizers"], json!(names(50_000)));
        let (mut present, mut unchanged) = (Present::new(&snapshot), 0);
        leaves("", &patch, Some(&snapshot), &mut |leaf| {
            unchanged += usize::from(present.find(&leaf) == leaf.base);
        });
        assert_eq!(unchanged, 100_000);
    }

    #[test]
    fn an_edit_is_found_in_another_version_of_the_object() {
        let snapshot = json!({"status": {"conditions": [{"type": "A"}, {"type": "B"}], "phase": "x"}});
        let patch = json!({"status": {"conditions": [{"type": "A", "n": 1}], "phase": "y"}});
        let other = json!({"status": {"conditions": [{"type": "B", "n": 2}, {"type": "B"}], "phase": null}});
        let found = |object: &Value| {
            let (mut present, mut found) = (Present::new(object), Vec::new());
            leaves("", &patch, Some(&snapshot), &mut |leaf| {
                found.push(present.find(&leaf).cloned());
            });
            found
        };
        assert_eq!(found(&other), [None, Some(json!({"type": "B", "n": 2})), None]);
        let in_the_way = json!({"status": "text"});
        assert_eq!(
            found(&in_the_way),
            [Some(json!("text")), Some(json!("text")), Some(json!("text"))]
        );
    }

    #[test]
    fn the_values_of_a_patch_are_its_leaves_and_the_elements_of_lists_with_keys() {
        for (patch, count) in [
            (json!({}), 0),
            (json!({"spec": {}}), 1),
            (json!({"spec": {"a": 1, "b": null, "c": [1, 2, 3]}}), 3),
            (
                json!({"metadata": {"finalizers": ["a", "b"]}, "status": {"conditions": []}}),
                3,
            ),
        ] {
            assert_eq!(values(&patch), count, "{patch}");
        }
    }

    #[test]
    fn a_declared_path_covers_what_is_below_it_and_no_longer_name() {
        assert!(declares("status", "status.phase"));
        assert!(declares("status.conditions", "status.conditions[Ready]"));
        assert!(!declares("status.phase", "status.phaseOfMoon"));
        assert!(!declares("status.phase", "status"));
    }
}
