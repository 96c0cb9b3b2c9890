//! Dotted paths into JSON: `status.conditions`, `spec.providerID`.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The value at a dotted path; none where it is absent or null.
pub fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(value, |v, part| v.get(part))
        .filter(|v| !v.is_null())
}

/// Keeps the named paths of an object, and what identifies it.
/// An empty projection keeps all but `resourceVersion`'s companions that nobody decides by (`managedFields`).
pub fn project(object: &Value, paths: &[String]) -> Value {
    if paths.is_empty() {
        return object.clone();
    }
    let mut kept = Map::new();
    for path in [
        "apiVersion",
        "kind",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.resourceVersion",
    ] {
        keep(object, path, &mut kept);
    }
    for path in paths {
        keep(object, path, &mut kept);
    }
    Value::Object(kept)
}

fn keep(from: &Value, path: &str, into: &mut Map<String, Value>) {
    let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
    let Some(value) = from.get(head) else { return };
    match rest {
        None => {
            into.insert(head.to_owned(), value.clone());
        }
        Some(rest) => {
            let slot = into.entry(head).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(slot) = slot {
                keep(value, rest, slot);
            }
        }
    }
}

/// What a value looked like, without the version that changes with every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

/// Digests a value, `metadata.resourceVersion` left out.
pub fn digest(value: &Value) -> Digest {
    let hash = Sha256::digest(content(value));
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    Digest(short)
}

/// What a value says, `metadata.resourceVersion` left out: bytes that differ where two values do.
pub fn content(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    write_content(value, &mut bytes);
    bytes
}

fn write_content(object: &Value, bytes: &mut Vec<u8>) {
    let Value::Object(fields) = object else {
        bytes.extend_from_slice(object.to_string().as_bytes());
        return;
    };
    for (name, value) in fields {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        match (name.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                for (name, value) in metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
                    bytes.extend_from_slice(name.as_bytes());
                    bytes.push(0);
                    write_value(value, bytes);
                }
            }
            _ => write_value(value, bytes),
        }
    }
    bytes.push(1);
}

fn write_value(value: &Value, bytes: &mut Vec<u8>) {
    // Writing JSON into a Vec cannot fail.
    let _ = serde_json::to_writer(&mut *bytes, value);
}

/// Whether two versions of an object say the same, `metadata.resourceVersion` aside.
pub fn same_content(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        return a == b;
    };
    a.len() == b.len()
        && a.iter().all(|(name, x)| match (name.as_str(), x, b.get(name)) {
            ("metadata", Value::Object(x), Some(Value::Object(y))) => same_but_version(x, y),
            (_, x, Some(y)) => x == y,
            (_, _, None) => false,
        })
}

fn same_but_version(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let others = |m: &Map<String, Value>| m.len() - usize::from(m.contains_key("resourceVersion"));
    others(a) == others(b)
        && a.iter()
            .all(|(name, x)| name == "resourceVersion" || b.get(name) == Some(x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_projection_keeps_what_identifies_an_object() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"a": "b"}},
            "spec": {"providerID": "x", "taints": []}});
        assert_eq!(
            project(&node, &["spec.providerID".into()]),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "x"}})
        );
    }

    #[test]
    fn a_new_resource_version_alone_is_no_change() {
        let a = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": 1});
        let b = json!({"metadata": {"name": "a", "resourceVersion": "2"}, "spec": 1});
        let c = json!({"metadata": {"name": "a", "resourceVersion": "2"}, "spec": 2});
        assert_eq!(digest(&a), digest(&b));
        assert!(same_content(&a, &b));
        assert_ne!(digest(&a), digest(&c));
        assert!(!same_content(&a, &c));
    }
}
