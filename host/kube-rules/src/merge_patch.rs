//! JSON merge patches, RFC 7386: `application/merge-patch+json`.
//!
//! JSON patches (RFC 6902) and strategic merge patches are not here.

use serde_json::{Map, Value};

/// Applies a merge patch: null removes a field, an object is merged, and anything else, lists included,
/// replaces the value.
pub fn apply(patch: &Value, to: &mut Value) {
    let Value::Object(changes) = patch else {
        *to = patch.clone();
        return;
    };
    if !to.is_object() {
        *to = Value::Object(Map::new());
    }
    let Value::Object(fields) = to else { return };
    for (name, change) in changes {
        match change {
            Value::Null => {
                fields.remove(name);
            }
            change => apply(change, fields.entry(name).or_insert(Value::Null)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_example_of_the_rfc_comes_out_as_it_says() {
        for (original, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut patched = original.clone();
            apply(&patch, &mut patched);
            assert_eq!(patched, result, "{original} patched with {patch}");
        }
    }
}
