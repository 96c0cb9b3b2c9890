//! JSON with the right names and the wrong values.

use serde_json::{Map, Value, json};

use super::Choices;

/// Names with a special meaning.
const NAMES: [&str; 30] = [
    "metadata",
    "spec",
    "status",
    "finalizers",
    "conditions",
    "pending",
    "labels",
    "annotations",
    "ownerReferences",
    "taints",
    "type",
    "key",
    "effect",
    "uid",
    "name",
    "namespace",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "operation",
    "intent",
    "since",
    "apiVersion",
    "kind",
    "$secret",
    "data",
    "a.b",
    "",
    "\\",
    "items",
];
/// Texts with a special meaning.
const TEXTS: [&str; 18] = [
    "",
    "a",
    "m0",
    "default",
    "Ready",
    "True",
    "polity.dev/Forged",
    "polity.dev/Slowed",
    "capv.polity.dev/machine",
    "other.example/keep",
    "vm.clone",
    "forged.create",
    "uid-1",
    "1",
    "Machine",
    "2026-01-01T00:00:00Z",
    "..",
    "\u{0}\u{1b}[2J\u{202e}",
];
/// Paths of an object that the host itself reads or writes.
const PATHS: [&str; 24] = [
    "metadata",
    "metadata.finalizers",
    "metadata.labels",
    "metadata.annotations",
    "metadata.ownerReferences",
    "metadata.name",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.deletionTimestamp",
    "metadata.managedFields",
    "status",
    "status.conditions",
    "status.pending",
    "status.phase",
    "status.task",
    "status.taints",
    "status.finalizers",
    "status.observedGeneration",
    "spec",
    "spec.template",
    "spec.taints",
    "apiVersion",
    "kind",
];

/// Any value, of this depth at most.
pub fn value(choices: &mut Choices<'_>, depth: usize) -> Value {
    let kind = choices.below(if depth == 0 { 7 } else { 11 });
    match kind {
        0 => Value::Null,
        1 => json!(choices.chance(128)),
        2 => json!(choices.number()),
        3 => json!(choices.pick(&TEXTS)),
        4 => choices
            .pick(&[json!(-1), json!(i64::MIN), json!(1e300), json!(0.5)].each_ref())
            .clone(),
        5 => json!([]),
        6 => json!({}),
        7 => json!(choices.text()),
        8 => {
            let len = choices.below(4);
            (0..len).map(|_| value(choices, depth - 1)).collect()
        }
        _ => {
            let len = choices.below(5);
            let field =
                |choices: &mut Choices<'_>| (choices.pick(&NAMES).to_owned(), value(choices, depth - 1));
            Value::Object((0..len).map(|_| field(choices)).collect())
        }
    }
}

/// A value that fits the path, honest or forged.
fn fitting(choices: &mut Choices<'_>, path: &str) -> Value {
    let text = choices.pick(&TEXTS);
    match path.rsplit('.').next().unwrap_or(path) {
        "finalizers" => {
            let all = ["capv.polity.dev/machine", "other.example/keep", "mine", "mine"];
            all[..choices.below(5)].iter().copied().collect()
        }
        "labels" | "annotations" => json!({text: "x"}),
        "ownerReferences" => {
            json!([{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": text, "controller": true}])
        }
        "conditions" => {
            let len = choices.below(4);
            let condition = |choices: &mut Choices<'_>| json!({"type": choices.pick(&TEXTS), "status": choices.pick(&["True", "False", "Unknown"])});
            (0..len).map(|_| condition(choices)).collect()
        }
        "pending" => json!([{"operation": choices.pick(&["forged.create", "vm.clone"]), "intent": text,
            "service": "vm@1", "key": text, "stamp": choices.pick(&[1, 2]), "place": ["sim"], "principal": "host",
            "since": choices.number(), "waited": choices.number()}]),
        "taints" => json!([{"key": text, "effect": "NoSchedule"}, {"key": text, "effect": "NoSchedule"}]),
        "metadata" | "spec" => json!({"labels": {text: "y"}}),
        "status" => json!({"phase": text}),
        _ => json!(text),
    }
}

/// A merge patch of an object, valid in some places and invalid in others.
pub fn patch(choices: &mut Choices<'_>) -> Value {
    let mut patch = json!({});
    for _ in 0..=choices.below(4) {
        let path = choices.pick(&PATHS);
        let value = if choices.chance(128) {
            fitting(choices, path)
        } else {
            value(choices, 2)
        };
        put(&mut patch, path, value);
    }
    if choices.chance(8) {
        value(choices, 3)
    } else {
        patch
    }
}

/// An object of a kind, valid in some places and invalid in others.
pub fn object(choices: &mut Choices<'_>, api_version: &str, kind: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "default"}});
    for _ in 0..choices.below(4) {
        let path = choices.pick(&PATHS);
        let value = if choices.chance(160) {
            fitting(choices, path)
        } else {
            value(choices, 2)
        };
        put(&mut object, path, value);
    }
    object
}

/// Sets the value at a dotted path, and replaces values that are in the way.
pub fn put(into: &mut Value, path: &str, value: Value) {
    let mut at = into;
    for part in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return };
        at = fields.entry(part).or_insert(Value::Null);
    }
    *at = value;
}

/// A value as text that no serialiser would write: with a duplicate key, escapes, too deep, or cut short.
pub fn text(choices: &mut Choices<'_>, value: &Value) -> String {
    let text = value.to_string();
    if !choices.chance(40) {
        return text;
    }
    match choices.below(7) {
        0 => text.replacen('{', r#"{"status":{"phase":"first"},"metadata":0,"#, 1),
        1 => text.replace("$secret", r"\u0024secret"),
        2 => text
            .replace("metadata", r"m\u0065tadata")
            .replace("pending", r"pen\u0064ing"),
        3 => {
            let deep = 16 << choices.below(10);
            format!("{}{}{}", r#"{"a":"#.repeat(deep), text, "}".repeat(deep))
        }
        4 => {
            let deep = 16 << choices.below(10);
            format!("{}{}", "[".repeat(deep), "]".repeat(deep))
        }
        5 => {
            let end = choices.below(256).min(text.len());
            String::from_utf8_lossy(&text.as_bytes()[..end]).into_owned()
        }
        _ => format!(" \n\t{text}\u{0}"),
    }
}

/// Changes a value somewhere inside: another value, none, one more, one twice.
pub fn mutate(choices: &mut Choices<'_>, value: &mut Value) {
    let inside = !choices.chance(40);
    match value {
        Value::Object(fields) if inside && !fields.is_empty() => {
            let nth = choices.below(fields.len());
            let Some(name) = fields.keys().nth(nth).cloned() else {
                return;
            };
            match choices.below(12) {
                0 => {
                    fields.remove(&name);
                }
                1 => {
                    fields.insert(choices.pick(&NAMES).to_owned(), self::value(choices, 2));
                }
                _ => mutate(choices, &mut fields[&name]),
            }
        }
        Value::Array(items) if inside && !items.is_empty() => {
            let nth = choices.below(items.len());
            match choices.below(8) {
                0 => {
                    items.remove(nth);
                }
                1 => items.push(items[nth].clone()),
                _ => mutate(choices, &mut items[nth]),
            }
        }
        other => *other = self::value(choices, 2),
    }
}
