//! `status.conditions`: one condition of each type (meta/v1 `Condition`).
//!
//! The writer of a condition decides what it says.

use serde_json::{Map, Value};

/// The condition of a type in an object's status; `None` if there is none.
pub fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Whether an object has a condition of this type with this status: `True`, `False` or `Unknown`.
pub fn is(object: &Value, kind: &str, status: &str) -> bool {
    find(object, kind).is_some_and(|condition| condition["status"] == status)
}

/// The `lastTransitionTime` that a condition keeps: that of the earlier condition of its type, as long as `status`
/// stays the same (apimachinery `meta.SetStatusCondition`). `None` if the condition takes the time of its writing.
pub fn since<'a>(before: impl IntoIterator<Item = &'a Value>, kind: &str, status: &str) -> Option<&'a str> {
    let known = before.into_iter().find(|known| known["type"] == kind)?;
    let time = known["lastTransitionTime"].as_str();
    time.filter(|_| known["status"] == status)
}

/// Sets a condition in a status and replaces the one of its type, whose time it keeps as [`since`] says. A status that
/// is not an object becomes one.
pub fn set(status: &mut Value, mut condition: Value) {
    if !status.is_object() {
        *status = Value::Object(Map::new());
    }
    let Value::Object(fields) = status else { return };
    let conditions = fields.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = Value::Array(Vec::new());
    }
    let Value::Array(conditions) = conditions else {
        return;
    };
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    let since = since(&*conditions, text("type"), text("status")).map(str::to_owned);
    if let (Some(since), Value::Object(fields)) = (since, &mut condition) {
        fields.insert("lastTransitionTime".to_owned(), since.into());
    }
    let known = conditions
        .iter_mut()
        .find(|known| known["type"] == condition["type"]);
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ready(status: &str, since: &str) -> Value {
        json!({"type": "Ready", "status": status, "lastTransitionTime": since})
    }

    #[test]
    fn a_condition_changes_its_time_only_with_its_status() {
        let mut status = json!({"conditions": [{"type": "Other"}]});
        set(&mut status, ready("False", "1"));
        set(&mut status, ready("False", "2"));
        assert_eq!(
            status["conditions"],
            json!([{"type": "Other"}, ready("False", "1")])
        );
        set(&mut status, ready("True", "3"));
        assert_eq!(status["conditions"][1], ready("True", "3"));
    }

    #[test]
    fn a_condition_without_a_time_takes_the_new_one() {
        let mut status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        set(&mut status, ready("True", "1"));
        assert_eq!(status["conditions"], json!([ready("True", "1")]));
    }

    #[test]
    fn no_status_stands_in_the_way() {
        for odd in [json!(null), json!("x"), json!([]), json!({"conditions": 7})] {
            let mut object = json!({"status": odd});
            assert!(find(&object, "Ready").is_none());
            set(&mut object["status"], ready("True", "1"));
            assert!(is(&object, "Ready", "True") && !is(&object, "Ready", "False"));
        }
    }
}
