//! Dotted paths into objects: `status.conditions`, `spec.providerID`.

use polity_kube_rules::text;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::contract::IDENTITY;

/// The value at a dotted path; `None` if it is absent or null.
pub fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(value, |v, part| v.get(part))
        .filter(|v| !v.is_null())
}

/// Keeps the values at these paths of an object's text, and the fields that identify the object. Without paths it
/// keeps all.
pub fn project<'a>(object: &str, paths: impl IntoIterator<Item = &'a str>) -> String {
    let mut paths = paths.into_iter().peekable();
    match paths.peek() {
        None => object.to_owned(),
        Some(_) => text::projection(object, IDENTITY.into_iter().chain(paths)),
    }
}

/// A short digest that stands for a value in comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

/// The digest of a value.
pub fn digest(value: &Value) -> Digest {
    let hash = Sha256::digest(value.to_string());
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    Digest(short)
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
            text::tree(&project(&node.to_string(), ["spec.providerID"])),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "x"}})
        );
        assert_eq!(project(&node.to_string(), []), node.to_string());
    }
}
