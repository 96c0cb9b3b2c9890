//! Conditions in a status.

use serde_json::{Value, json};

/// Puts a condition in the place of the one of its type. It keeps the `lastTransitionTime` of one with the same status.
pub(crate) fn set(status: &mut Value, mut condition: Value) {
    if !status.is_object() {
        *status = json!({});
    }
    let conditions = &mut status["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}
