//! What two servers must agree on: everything except the values that each generates itself.

use serde_json::{Map, Value};

/// What a person sees of a node, beside its conditions. A real API server taints new nodes (`TaintNodesByCondition`),
/// and nobody takes that away here.
pub(crate) const NODE: [&str; 4] = [
    "metadata.labels",
    "metadata.annotations",
    "spec.providerID",
    "spec.unschedulable",
];

/// An object without what differs from server to server: versions, and in place of uids and times that there are some.
pub(crate) fn masked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields.iter().filter_map(field).collect()),
        Value::Array(elements) => elements.iter().map(masked).collect(),
        Value::String(text) if is_uid(text) => "(uid)".into(),
        Value::String(text) if is_time(text) => "(time)".into(),
        other => other.clone(),
    }
}

fn field((name, value): (&String, &Value)) -> Option<(String, Value)> {
    match name.as_str() {
        "resourceVersion" | "managedFields" => None,
        _ => Some((name.clone(), masked(value))),
    }
}

/// Some values of an object by their dotted paths, masked; what is absent is left out.
pub(crate) fn some(object: &Value, paths: &[&str]) -> Value {
    let found = paths.iter().filter_map(|path| {
        let value = polity_core::projection::get(object, path)?;
        Some(((*path).to_owned(), masked(value)))
    });
    Value::Object(found.collect::<Map<_, _>>())
}

/// `11111111-2222-3333-4444-555555555555`
fn is_uid(text: &str) -> bool {
    let groups = text.split('-').map(str::len);
    groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// `2026-01-01T00:00:00Z`, perhaps with fractions.
fn is_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else {
        return false;
    };
    date.split('-').map(str::len).eq([4, 2, 2]) && time.ends_with('Z') && time.split(':').count() == 3
}

#[test]
fn only_what_a_server_makes_up_is_masked() {
    let object = serde_json::json!({
        "metadata": {
            "name": "m-1", "uid": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [],
        },
        "status": {"since": "2026-01-01T00:00:00.250Z", "node": "node-m-1", "text": "To be: or not: to be"},
    });
    let expected = serde_json::json!({
        "metadata": {"name": "m-1", "uid": "(uid)", "generation": 2, "creationTimestamp": "(time)"},
        "status": {"since": "(time)", "node": "node-m-1", "text": "To be: or not: to be"},
    });
    assert_eq!(masked(&object), expected);
    let name = serde_json::json!({"metadata.name": "m-1"});
    assert_eq!(some(&object, &["metadata.name", "spec.absent"]), name);
}
