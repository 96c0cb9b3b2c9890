//! What a conclusion's patch means for its object.
//!
//! A patch is a JSON merge patch, read against the snapshot that the pass saw. `finalizers`, `ownerReferences`,
//! `conditions` and `taints` merge by key, so that two writers of different elements do not meet; a list whose elements
//! have no key, or one twice, is a value like any other.
//!
//! The test kit of the SDK publishes by these rules. The host's are in `polity_core::plan`, and a test holds both to the
//! same.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// One value that a patch writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edited {
    /// A dotted path, elements of a list by key in brackets: `status.conditions[Ready]`.
    pub path: String,
    /// Whether the value is removed.
    pub removes: bool,
}

/// The object with a patch against `snapshot` on top of what stands now.
pub fn onto(snapshot: &Value, patch: &Value, current: &Value) -> Value {
    let mut desired = current.clone();
    merge("", patch, Some(snapshot), &mut desired);
    desired
}

/// The values that a patch against `snapshot` writes, element by element.
pub fn edits(snapshot: &Value, patch: &Value) -> Vec<Edited> {
    let mut found = Vec::new();
    leaves("", patch, Some(snapshot), &mut found);
    found
}

/// Whether a declared path (`status`, `status.conditions[Ready]`) covers an edited one.
pub fn declares(declared: &str, edited: &str) -> bool {
    edited
        .strip_prefix(declared)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn leaves(path: &str, patch: &Value, base: Option<&Value>, found: &mut Vec<Edited>) {
    let Value::Object(fields) = patch else { return };
    for (name, wanted) in fields {
        let path = join(path, name);
        let base = base.and_then(|b| b.get(name)).filter(|b| !b.is_null());
        if let (Some(old), Some(new)) = (keyed(name, base), keyed(name, Some(wanted))) {
            elements(&path, &old, &new, found);
            continue;
        }
        let removes = wanted.is_null();
        match base.filter(|base| !base.is_object()) {
            None if wanted.as_object().is_some_and(|inner| !inner.is_empty()) => {
                leaves(&path, wanted, base, found);
                continue;
            }
            // It replaces the value as a whole, and edits what it says below.
            Some(_) => leaves(&path, wanted, None, found),
            None => {}
        }
        found.push(Edited { path, removes });
    }
}

fn elements(path: &str, old: &[(String, &Value)], new: &[(String, &Value)], found: &mut Vec<Edited>) {
    let changed = new
        .iter()
        .filter(|(key, element)| find(old, key) != Some(element))
        .map(|(key, _)| (key, false));
    let removed = old
        .iter()
        .filter(|(key, _)| find(new, key).is_none())
        .map(|(key, _)| (key, true));
    found.extend(changed.chain(removed).map(|(key, removes)| Edited {
        path: format!("{path}[{key}]"),
        removes,
    }));
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
    fn a_declared_path_covers_what_is_below_it_and_no_longer_name() {
        assert!(declares("status", "status.phase"));
        assert!(declares("status.conditions", "status.conditions[Ready]"));
        assert!(!declares("status.phase", "status.phaseOfMoon"));
        assert!(!declares("status.phase", "status"));
    }
}
