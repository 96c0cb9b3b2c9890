//! Turns edits of an object into a JSON merge patch.
//!
//! The object as the policy's type read it is compared with the object as the policy left it. A field that
//! the type does not name is in neither of them. So it is not in the patch, and it stays as it is stored. A
//! merge patch replaces lists as a whole, so elements of a list are completed from the stored object.

use std::cell::OnceCell;

use serde::Serialize;

use crate::json::Json;

/// The merge patch from `before` to `after`; `None` if they are equal. `stored` is the object's full JSON.
pub(crate) fn between<T: Serialize + PartialEq>(before: &T, after: &T, stored: &str) -> Option<String> {
    if before == after {
        return None;
    }
    let text = |object: &T| serde_json::to_string(object).expect("an object has a JSON form");
    let (before, after) = (text(before), text(after));
    let stored = Stored {
        text: stored,
        tree: OnceCell::new(),
    };
    let patch = difference(&Json::read(&before), &Json::read(&after), &At::Top(&stored))?;
    let mut text = String::with_capacity(256);
    patch.write(&mut text);
    Some(text)
}

/// The stored object. It is parsed only if a list has changed.
struct Stored<'a> {
    text: &'a str,
    tree: OnceCell<Json<'a>>,
}

/// A position in the stored object.
enum At<'p, 'a> {
    Top(&'p Stored<'a>),
    Field(&'p At<'p, 'a>, &'p str),
    Element(&'p Json<'a>),
}

impl<'p, 'a> At<'p, 'a> {
    fn value(&'p self) -> Option<&'p Json<'a>> {
        match self {
            At::Top(stored) => Some(stored.tree.get_or_init(|| Json::read(stored.text))),
            At::Field(parent, key) => parent.value()?.get(key),
            At::Element(value) => Some(value),
        }
    }
}

/// The merge patch from `before` to `after`; `None` if they are equal.
fn difference<'a>(before: &Json<'a>, after: &Json<'a>, stored: &At<'_, 'a>) -> Option<Json<'a>> {
    match (before, after) {
        (Json::Object(was), Json::Object(fields)) => {
            let gone = was.iter().filter(|(key, _)| after.get(key).is_none());
            let mut patch: Vec<_> = gone.map(|(key, _)| (*key, Json::NULL)).collect();
            for (key, value) in fields {
                let change = match before.get(key) {
                    Some(old) => difference(old, value, &At::Field(stored, key)),
                    None => Some(without_nulls(value)),
                };
                patch.extend(change.map(|change| (*key, change)));
            }
            (!patch.is_empty()).then_some(Json::Object(patch))
        }
        (before, after) if before == after => None,
        (Json::Array(before), Json::Array(after)) => Some(complete_list(before, after, stored)),
        (_, after) => Some(after.clone()),
    }
}

/// A value without nulls. In a merge patch a null removes a field; a new field needs none.
fn without_nulls<'a>(value: &Json<'a>) -> Json<'a> {
    match value {
        Json::Object(fields) => {
            let some = fields.iter().filter(|(_, value)| *value != Json::NULL);
            Json::Object(some.map(|(key, value)| (*key, without_nulls(value))).collect())
        }
        value => value.clone(),
    }
}

/// The fields by which an element of a list is recognised.
const KEYS: [&str; 5] = ["\"uid\"", "\"type\"", "\"key\"", "\"name\"", "\"id\""];

/// The new list. Each element is completed with the fields that its stored form has and the policy's type
/// lacks.
fn complete_list<'a>(before: &[Json<'a>], after: &[Json<'a>], stored: &At<'_, 'a>) -> Json<'a> {
    let stored = stored.value().map_or(&[][..], Json::elements);
    if before.len() != stored.len() {
        return Json::Array(after.to_vec());
    }
    let complete = |element: &Json<'a>| {
        let Some(at) = before.iter().position(|old| same(old, element)) else {
            return element.clone();
        };
        let mut full = stored[at].clone();
        if let Some(change) = difference(&before[at], element, &At::Element(&stored[at])) {
            merge(&mut full, change);
        }
        full
    };
    Json::Array(after.iter().map(complete).collect())
}

/// Whether two elements are the same thing: they are equal, or equal in the first of these fields that they
/// have.
fn same(old: &Json<'_>, new: &Json<'_>) -> bool {
    match KEYS.iter().find(|key| new.get(key).is_some()) {
        Some(key) => old.get(key) == new.get(key),
        None => old == new,
    }
}

/// Applies a merge patch (RFC 7396).
fn merge<'a>(target: &mut Json<'a>, patch: Json<'a>) {
    let (Json::Object(fields), Json::Object(patch)) = (&mut *target, &patch) else {
        *target = patch;
        return;
    };
    for (key, change) in patch {
        fields.retain(|(name, _)| name != key || *change != Json::NULL);
        match fields.iter_mut().find(|(name, _)| name == key) {
            Some((_, value)) => merge(value, change.clone()),
            None if *change != Json::NULL => fields.push((*key, change.clone())),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

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
