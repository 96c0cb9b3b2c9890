//! The two kinds of events: `events.k8s.io/v1` is stored as `v1`, some fields have other names.

use serde_json::Value;

/// (name in core/v1, name in events.k8s.io/v1)
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// From events.k8s.io/v1 to core/v1.
pub(super) fn to_core(event: &mut Value) {
    for (core, new) in RENAMED {
        rename(event, new, core);
    }
}

/// From core/v1 to events.k8s.io/v1.
pub(super) fn from_core(event: &mut Value) {
    for (core, new) in RENAMED {
        rename(event, core, new);
    }
}

/// The core/v1 name of a field that a selector of events.k8s.io/v1 names.
pub(crate) fn core_field(field: &str) -> Option<String> {
    let (head, rest) = field
        .split_once('.')
        .map_or((field, ""), |(head, _)| (head, &field[head.len()..]));
    RENAMED
        .iter()
        .find(|(_, new)| *new == head)
        .map(|(core, _)| format!("{core}{rest}"))
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(fields) = object.as_object_mut()
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}
