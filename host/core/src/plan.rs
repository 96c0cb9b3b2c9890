//! The publication plan: what a conclusion's patch means for the object as it stands now.
//!
//! A patch is read against the snapshot that the pass saw. `finalizers`, `ownerReferences`, `conditions` and `taints`
//! merge by key, so that two writers of different elements do not meet. Everything goes out as JSON merge patches with
//! `metadata.uid` and `metadata.resourceVersion` as the precondition.

use serde_json::{Map, Value, json};

use crate::object::Object;

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

    /// The values this writes, element by element.
    pub fn paths(&self) -> Vec<EditPath> {
        let mut paths = Vec::new();
        leaves("", &self.patch, Some(self.snapshot.value()), &mut |leaf| {
            paths.push(leaf.path)
        });
        paths
    }

    /// Edited values that somebody else has changed since the snapshot.
    pub fn conflicts(&self, fresh: &Value) -> Vec<EditPath> {
        let mut conflicts = Vec::new();
        leaves("", &self.patch, Some(self.snapshot.value()), &mut |leaf| {
            let now = leaf.find(fresh);
            if now != leaf.base && now != leaf.wanted {
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
    wanted: Option<&'a Value>,
}

impl Leaf<'_> {
    /// This value in another version of the object.
    fn find<'b>(&self, object: &'b Value) -> Option<&'b Value> {
        match &self.list {
            None => pointer(object, &self.path),
            Some((path, key)) => {
                let name = path.rsplit('.').next().unwrap_or(path);
                pointer(object, path)?
                    .as_array()?
                    .iter()
                    .find(|e| element_key(name, e) == *key)
            }
        }
    }
}

fn pointer<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    segments(path)
        .into_iter()
        .try_fold(value, |v, part| v.get(part))
        .filter(|v| !v.is_null())
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
        "taints" => format!("{}:{}", field("key"), field("effect")),
        "ownerReferences" => field("uid").to_owned(),
        _ => element.as_str().unwrap_or_default().to_owned(),
    }
}

fn elements<'a>(list: &'a str, value: Option<&'a Value>) -> Vec<(String, &'a Value)> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|element| (element_key(list, element), element))
        .collect()
}

fn find<'a>(all: &[(String, &'a Value)], key: &str) -> Option<&'a Value> {
    all.iter().find(|(k, _)| k == key).map(|(_, element)| *element)
}

fn leaves<'a>(path: &str, patch: &'a Value, base: Option<&'a Value>, found: &mut impl FnMut(Leaf<'a>)) {
    let Value::Object(fields) = patch else { return };
    for (name, wanted) in fields {
        let path = join(path, name);
        let base = base.and_then(|b| b.get(name)).filter(|b| !b.is_null());
        match wanted {
            Value::Object(inner) if !inner.is_empty() => leaves(&path, wanted, base, found),
            Value::Array(_) if is_keyed(name) => {
                let (old, new) = (elements(name, base), elements(name, Some(wanted)));
                let changed = new
                    .iter()
                    .filter(|(key, element)| find(&old, key) != Some(element));
                let removed = old.iter().filter(|(key, _)| find(&new, key).is_none());
                for (key, _) in changed.chain(removed) {
                    found(Leaf {
                        path: format!("{path}[{key}]"),
                        list: Some((path.clone(), key.clone())),
                        base: find(&old, key),
                        wanted: find(&new, key),
                    });
                }
            }
            _ => found(Leaf {
                path,
                list: None,
                base,
                wanted: Some(wanted).filter(|w| !w.is_null()),
            }),
        }
    }
}

fn merge(name: &str, patch: &Value, base: Option<&Value>, current: &mut Value) {
    match patch {
        Value::Object(fields) => {
            if !current.is_object() {
                *current = Value::Object(Map::new());
            }
            let Value::Object(target) = current else { return };
            for (name, wanted) in fields {
                if wanted.is_null() {
                    target.remove(name);
                } else {
                    let slot = target.entry(name).or_insert(Value::Null);
                    merge(name, wanted, base.and_then(|b| b.get(name)), slot);
                }
            }
        }
        Value::Array(wanted) if is_keyed(name) => {
            let (old, new) = (elements(name, base), elements(name, Some(patch)));
            let mut merged: Vec<Value> = Vec::new();
            for element in current.as_array().into_iter().flatten() {
                let key = element_key(name, element);
                match (find(&old, &key), find(&new, &key)) {
                    (Some(_), None) => {}
                    (before, Some(after)) if before != Some(after) => merged.push(after.clone()),
                    _ => merged.push(element.clone()),
                }
            }
            for element in wanted {
                let key = element_key(name, element);
                let here = merged.iter().any(|e| element_key(name, e) == key);
                if !here && find(&old, &key) != Some(element) {
                    merged.push(element.clone());
                }
            }
            *current = Value::Array(merged);
        }
        other => *current = other.clone(),
    }
}

fn remove(patch: &mut Value, path: &str) {
    let mut parts = segments(path);
    let Some(last) = parts.pop() else { return };
    let parent = parts.iter().try_fold(patch, |v, part| v.get_mut(part));
    if let Some(Value::Object(fields)) = parent {
        fields.remove(&last);
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

/// Applies a JSON merge patch as an API server does: lists are values like any other.
pub fn apply(patch: &Value, to: &mut Value) {
    let Value::Object(fields) = patch else {
        *to = patch.clone();
        return;
    };
    if !to.is_object() {
        *to = Value::Object(Map::new());
    }
    let Value::Object(target) = to else { return };
    for (name, value) in fields {
        match value {
            Value::Null => {
                target.remove(name);
            }
            value => apply(value, target.entry(name).or_insert(Value::Null)),
        }
    }
}

/// The patch that one part of a publication needs, precondition included; none if that part stands already.
pub fn write(part: Part, current: &Object, desired: &Value) -> Option<Value> {
    let now = current.value();
    let mut patch = match part {
        Part::Main => {
            let mut wanted = desired.clone();
            if let Value::Object(fields) = &mut wanted {
                match now.get("status") {
                    Some(status) => fields.insert("status".into(), status.clone()),
                    None => fields.remove("status"),
                };
            }
            let kept = kept_finalizers(now, desired);
            if now["metadata"]["finalizers"].is_array() || !kept.is_empty() {
                wanted["metadata"]["finalizers"] = Value::Array(kept);
            }
            diff(now, &wanted)
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
            let wanted = elements("finalizers", Some(&desired["metadata"]["finalizers"]));
            let held = elements("finalizers", Some(&now["metadata"]["finalizers"]));
            let kept: Vec<&Value> = held
                .iter()
                .filter(|(k, _)| find(&wanted, k).is_some())
                .map(|(_, v)| *v)
                .collect();
            (kept.len() < held.len()).then(|| json!({"metadata": {"finalizers": kept}}))
        }
    }?;
    patch["metadata"]["uid"] = json!(current.uid());
    patch["metadata"]["resourceVersion"] = json!(current.version().0.to_string());
    Some(patch)
}

/// What is held now, and what is to be added.
fn kept_finalizers(now: &Value, desired: &Value) -> Vec<Value> {
    let held = elements("finalizers", Some(&now["metadata"]["finalizers"]));
    let added = elements("finalizers", Some(&desired["metadata"]["finalizers"]));
    let new = added.iter().filter(|(key, _)| find(&held, key).is_none());
    held.iter()
        .chain(new)
        .map(|(_, element)| (*element).clone())
        .collect()
}

/// Combines the patches of the identity and the lifecycle, which declared that they write different paths.
pub fn combine(a: Value, b: Value, snapshot: &Value) -> Value {
    let mut both = snapshot.clone();
    merge("", &a, Some(snapshot), &mut both);
    merge("", &b, Some(snapshot), &mut both);
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
