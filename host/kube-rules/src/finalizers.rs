//! `metadata.finalizers`: they keep an object after its deletion has begun.
//!
//! Which finalizers a writer may add or remove is not decided here.

use serde_json::{Value, json};

/// The finalizers of an object, in their order.
pub fn of(object: &Value) -> impl Iterator<Item = &str> {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether an object has this finalizer.
pub fn has(object: &Value, finalizer: &str) -> bool {
    of(object).any(|found| found == finalizer)
}

/// Adds a finalizer at the end, unless the object has it already.
pub fn add(object: &mut Value, finalizer: &str) {
    if has(object, finalizer) {
        return;
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    match metadata.get_mut("finalizers") {
        Some(Value::Array(finalizers)) => finalizers.push(json!(finalizer)),
        _ => {
            metadata.insert("finalizers".to_owned(), json!([finalizer]));
        }
    }
}

/// Removes a finalizer, if the object has it.
pub fn remove(object: &mut Value, finalizer: &str) {
    if let Some(Value::Array(finalizers)) = object.pointer_mut("/metadata/finalizers") {
        finalizers.retain(|found| found != finalizer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_added_once_and_removed_alone() {
        let mut object = json!({"metadata": {"name": "a"}});
        add(&mut object, "a/x");
        add(&mut object, "a/y");
        add(&mut object, "a/x");
        assert_eq!(of(&object).collect::<Vec<_>>(), ["a/x", "a/y"]);
        remove(&mut object, "a/x");
        assert!(!has(&object, "a/x") && has(&object, "a/y"));
    }

    #[test]
    fn what_has_no_metadata_has_no_finalizers_and_gets_none() {
        for odd in [json!(null), json!(7), json!({"metadata": "x"}), json!([1])] {
            let mut object = odd.clone();
            add(&mut object, "a/x");
            remove(&mut object, "a/x");
            assert_eq!((of(&object).count(), &object), (0, &odd));
        }
    }
}
