//! From edits to a JSON merge patch.
//!
//! Compared are the object as the policy's type read it and as the policy left it. What the type does not name is in
//! neither, so it is not in the patch and stays as it is stored. A merge patch replaces lists as a whole; there, the
//! elements are completed from the stored object.

use serde::Serialize;
use serde_json::{Map, Value};

/// The merge patch from `before` to `after`; none if they are equal. `stored` is the object's full JSON.
pub(crate) fn between<T: Serialize + PartialEq>(before: &T, after: &T, stored: &str) -> Option<String> {
    if before == after {
        return None;
    }
    let value = |object: &T| serde_json::to_value(object).expect("an object has a JSON form");
    let stored = serde_json::from_str(stored).unwrap_or(Value::Null);
    let patch = difference(&value(before), value(after), &stored)?;
    Some(patch.to_string())
}

/// The merge patch from `before` to `after`, or none.
fn difference(before: &Value, after: Value, stored: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let patch = object_difference(before, after, stored);
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (before, after) if *before == after => None,
        (before, Value::Array(after)) => Some(complete_list(before, after, stored)),
        (_, after) => Some(after),
    }
}

fn object_difference(
    before: &Map<String, Value>,
    after: Map<String, Value>,
    stored: &Value,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for field in before.keys().filter(|field| !after.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, after) in after {
        let stored = stored.get(&field).unwrap_or(&Value::Null);
        let change = match before.get(&field) {
            Some(before) => difference(before, after, stored),
            None => Some(without_nulls(after)),
        };
        if let Some(change) = change {
            patch.insert(field, change);
        }
    }
    patch
}

/// In a merge patch a null erases: a field that never was needs none.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, value| !value.is_null());
        for value in fields.values_mut() {
            *value = without_nulls(value.take());
        }
    }
    value
}

/// Names by which an element of a list is recognised.
const KEYS: [&str; 5] = ["uid", "type", "key", "name", "id"];

/// The new list, each element completed with the fields that its stored form has and the policy's type does not.
fn complete_list(before: &Value, after: Vec<Value>, stored: &Value) -> Value {
    let before = before.as_array().map_or(&[][..], Vec::as_slice);
    let stored = stored.as_array().map_or(&[][..], Vec::as_slice);
    if before.len() != stored.len() {
        return Value::Array(after);
    }
    let complete = |element: Value| {
        let Some(at) = before.iter().position(|old| same(old, &element)) else {
            return element;
        };
        let mut full = stored[at].clone();
        if let Some(change) = difference(&before[at], element, &stored[at]) {
            merge(&mut full, change);
        }
        full
    };
    Value::Array(after.into_iter().map(complete).collect())
}

/// Whether two elements are the same thing: equal, or equal in the first key that they have.
fn same(old: &Value, new: &Value) -> bool {
    let key = KEYS.iter().find(|key| new.get(**key).is_some());
    match key {
        Some(key) => old.get(*key) == new.get(*key),
        None => old == new,
    }
}

/// Applies a merge patch (RFC 7396).
pub(crate) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (field, change) in patch {
        if change.is_null() {
            fields.remove(&field);
        } else {
            merge(fields.entry(field).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct Seen {
        #[serde(skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        nullable: Option<u32>,
        list: Vec<Element>,
        nested: Nested,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct Nested {
        count: u32,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Element {
        #[serde(rename = "type")]
        kind: String,
        value: u32,
    }

    fn patch(stored: Value, edit: impl FnOnce(&mut Seen)) -> Option<Value> {
        let before: Seen = serde_json::from_value(stored.clone()).unwrap();
        let mut after = before.clone();
        edit(&mut after);
        let patch = between(&before, &after, &stored.to_string())?;
        Some(serde_json::from_str(&patch).unwrap())
    }

    #[test]
    fn no_edit_is_no_patch_even_where_defaults_fill_what_is_missing() {
        assert_eq!(patch(json!({}), |_| {}), None);
        assert_eq!(
            patch(json!({"nested": {"other": 1}}), |seen| seen.nested.count = 0),
            None
        );
    }

    #[test]
    fn only_edited_fields_are_in_the_patch() {
        let stored = json!({"task": "t-1", "foreign": {"a": 1}, "nested": {"count": 1, "other": 2}});
        assert_eq!(
            patch(stored, |seen| {
                seen.task = None;
                seen.nullable = Some(1);
                seen.nested.count = 5;
            }),
            Some(json!({"task": null, "nullable": 1, "nested": {"count": 5}}))
        );
    }

    #[test]
    fn elements_of_a_list_keep_what_the_policy_does_not_know() {
        let stored = json!({"list": [
            {"type": "A", "value": 1, "more": "a"},
            {"type": "B", "value": 2, "more": "b"},
        ]});
        assert_eq!(
            patch(stored, |seen| {
                seen.list.remove(0);
                seen.list[0].value = 3;
                seen.list.push(Element {
                    kind: "C".into(),
                    value: 4,
                });
            }),
            Some(json!({"list": [{"type": "B", "value": 3, "more": "b"}, {"type": "C", "value": 4}]}))
        );
    }
}
