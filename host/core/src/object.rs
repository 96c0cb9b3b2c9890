//! A Kubernetes object as the host keeps it: its canonical text, shared, with the metadata that the host often needs.
//!
//! The host keeps many objects and edits few of them. So an object has no tree: an edit makes one and drops it
//! afterwards, and a value at a path is read from the text.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use polity_kube_rules::text;
use serde_json::Value;

use crate::contract::{Json, Kind, ObjectRef, Precondition};
use crate::tree::Tree;

/// The version of an object. Since 1.35 Kubernetes promises that versions compare as numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct ResourceVersion(pub u64);

/// A Kubernetes object, immutable and cheap to clone, without its `managedFields`.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    /// Canonical text: two objects are equal if their texts are equal.
    json: Json,
    /// The range of `metadata.resourceVersion` in the text.
    version_at: Range<usize>,
    /// The range of `metadata.labels` in the text. Lists select by labels, so they are found without reading the text.
    labels_at: Range<usize>,
    version: ResourceVersion,
    generation: Option<u64>,
    is_deleting: bool,
    api_version: Box<str>,
    kind: Box<str>,
    namespace: Option<Box<str>>,
    name: Box<str>,
    uid: Box<str>,
}

impl Object {
    /// Takes an object as an API server sends it. Missing metadata reads as empty.
    pub fn new(mut value: Value) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = &value["metadata"];
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let version = metadata["resourceVersion"].as_str().and_then(|v| v.parse().ok());
        let mut inner = Inner {
            json: Json::from(""),
            version_at: 0..0,
            labels_at: 0..0,
            version: ResourceVersion(version.unwrap_or_default()),
            generation: metadata["generation"].as_u64(),
            is_deleting: !metadata["deletionTimestamp"].is_null(),
            api_version: text(&value["apiVersion"]),
            kind: text(&value["kind"]),
            namespace: metadata["namespace"].as_str().map(Box::from),
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
        };
        inner.json = text::canonical(value).into();
        [inner.version_at, inner.labels_at] = metadata_at(&inner.json, ["resourceVersion", "labels"]);
        Object(Arc::new(inner))
    }

    /// The same object with only a part of its text. The part must contain [`KEPT_METADATA`] and all fields that identify
    /// the object.
    ///
    /// [`KEPT_METADATA`]: crate::call::KEPT_METADATA
    pub(crate) fn with_part(&self, part: String) -> Self {
        let whole = &self.0;
        let [version_at, labels_at] = metadata_at(&part, ["resourceVersion", "labels"]);
        Object(Arc::new(Inner {
            version_at,
            labels_at,
            json: part.into(),
            version: whole.version,
            generation: whole.generation,
            is_deleting: whole.is_deleting,
            api_version: whole.api_version.clone(),
            kind: whole.kind.clone(),
            namespace: whole.namespace.clone(),
            name: whole.name.clone(),
            uid: whole.uid.clone(),
        }))
    }

    /// The whole object as text.
    pub fn json(&self) -> &Json {
        &self.0.json
    }

    /// The whole object as a new tree, for an edit.
    pub fn tree(&self) -> Value {
        text::tree(&self.0.json)
    }

    /// The value at a dotted path as text; `None` if it is absent or null.
    pub fn text_at(&self, path: &str) -> Option<&str> {
        text::at(&self.0.json, path)
    }

    /// The value at a dotted path; `None` if it is absent or null.
    pub fn at(&self, path: &str) -> Option<Value> {
        text::value_at(&self.0.json, path)
    }

    /// The string at a dotted path; `None` if the value is no string.
    pub fn str_at(&self, path: &str) -> Option<Cow<'_, str>> {
        text::str_at(&self.0.json, path)
    }

    /// The text without the version, in two pieces. The version changes with every write, so comparisons leave it
    /// out.
    pub fn content(&self) -> [&str; 2] {
        without(&self.0.json, &self.0.version_at)
    }

    /// Whether two objects are equal, except for their versions.
    pub fn says_the_same(&self, other: &Object) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.content() == other.content()
    }

    /// `metadata.uid`
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// `metadata.resourceVersion`
    pub fn version(&self) -> ResourceVersion {
        self.0.version
    }

    /// The precondition that the object still has this uid and version.
    pub fn precondition(&self) -> Precondition {
        Precondition {
            uid: self.uid().to_owned(),
            resource_version: Some(self.version().0.to_string()),
        }
    }

    /// `metadata.generation`; `None` for kinds without it.
    pub fn generation(&self) -> Option<u64> {
        self.0.generation
    }

    /// Whether the other version has the same spec. API servers count the changes of a spec in the generation. In kinds
    /// without one everything but metadata and status counts as spec: the data of a ConfigMap, the spec of a Node.
    pub(crate) fn has_spec_of(&self, other: &Object) -> bool {
        let spec = |object: &Object| {
            let mut tree = Tree::new(object.tree());
            for field in ["metadata", "status"] {
                tree.remove(&[field]);
            }
            tree
        };
        match (self.generation(), other.generation()) {
            (None, None) => self.version() == other.version() || spec(self) == spec(other),
            (one, other) => one == other,
        }
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(&self) -> bool {
        self.0.is_deleting
    }

    /// `metadata.namespace`
    pub fn namespace(&self) -> Option<&str> {
        self.0.namespace.as_deref()
    }

    /// `metadata.name`
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// `apiVersion` and `kind`
    pub fn kind(&self) -> Kind {
        Kind {
            api_version: self.0.api_version.to_string(),
            kind: self.0.kind.to_string(),
        }
    }

    /// The reference that names this object.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef {
            cluster: None,
            kind: self.kind(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    /// `metadata.labels`, as text; empty if there are none.
    pub fn labels(&self) -> &str {
        self.0.json.get(self.0.labels_at.clone()).unwrap_or_default()
    }

    /// `metadata.finalizers`
    pub fn finalizers(&self) -> Vec<String> {
        let held = self.text_at("metadata.finalizers");
        let held: Vec<Value> = held
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        held.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether `metadata.finalizers` contains this one.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|held| held == finalizer)
    }
}

/// The pieces of a text before and after a range.
fn without<'a>(text: &'a str, range: &Range<usize>) -> [&'a str; 2] {
    let before = text.get(..range.start).unwrap_or(text);
    [before, text.get(range.end..).unwrap_or_default()]
}

/// The ranges of fields of `metadata` in the text of an object; for a field that is missing, an empty range at the end.
fn metadata_at<const N: usize>(text: &str, fields: [&str; N]) -> [Range<usize>; N] {
    let metadata = text::at(text, "metadata").unwrap_or_default();
    fields.map(|field| match text::at(metadata, field) {
        None => text.len()..text.len(),
        Some(value) => {
            // `value` is a slice of `text`, so the difference of their addresses is an offset in `text`.
            let start = (value.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            start..start + value.len()
        }
    })
}

/// The text of an object, or of a part that contains its version, without the version.
pub(crate) fn content(text: &str) -> [&str; 2] {
    let [version_at] = metadata_at(text, ["resourceVersion"]);
    without(text, &version_at)
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}@{}", self.0.kind, self.name(), self.version().0)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.json == other.0.json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_new_version_alone_is_no_change() {
        let object = |version: &str, spec: u64| {
            Object::new(json!({"metadata": {"name": "a", "resourceVersion": version}, "spec": spec}))
        };
        assert!(object("1", 1).says_the_same(&object("20", 1)));
        assert!(!object("1", 1).says_the_same(&object("1", 2)));
        assert_ne!(object("1", 1), object("2", 1));
        assert_eq!(object("1", 1), object("1", 1));
        let none = Object::new(json!({"metadata": {"name": "a"}, "spec": 1}));
        assert!(!object("1", 1).says_the_same(&none));
        assert!(none.says_the_same(&none.clone()));
    }

    #[test]
    fn a_kind_without_generations_has_another_spec_if_anything_else_than_metadata_or_status_differs() {
        let object = |version: &str, rest: Value| {
            let mut object = json!({"kind": "Any", "metadata": {"name": "a", "resourceVersion": version}});
            crate::merge::apply(&rest, &mut object);
            Object::new(object)
        };
        let plain = object("1", json!({"data": {"x": "1"}, "status": {"seen": 1}}));
        for (rest, is_same) in [
            (json!({"data": {"x": "1"}, "status": {"seen": 2}}), true),
            (
                json!({"data": {"x": "1"}, "metadata": {"labels": {"a": "b"}}}),
                true,
            ),
            (json!({"data": {"x": "2"}, "status": {"seen": 1}}), false),
            (
                json!({"data": {"x": "1"}, "spec": {"unschedulable": true}}),
                false,
            ),
            (json!({"data": {"x": "1"}, "metadata": {"generation": 1}}), false),
        ] {
            assert_eq!(plain.has_spec_of(&object("2", rest.clone())), is_same, "{rest}");
        }
        let counted = |generation: u64, spec: u64| {
            object("1", json!({"metadata": {"generation": generation}, "spec": spec}))
        };
        assert!(counted(1, 1).has_spec_of(&counted(1, 2)));
        assert!(!counted(1, 1).has_spec_of(&counted(2, 1)));
    }

    #[test]
    fn the_labels_are_at_hand_in_the_whole_object_and_in_a_part_of_it() {
        let object = Object::new(json!({"data": {"metadata": {"labels": "of the data"}},
            "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"labels": "x"}}}));
        assert_eq!(object.labels(), r#"{"a":"b"}"#);
        let part = object.with_part(crate::projection::project(object.json(), ["metadata.labels"]));
        assert_eq!(part.labels(), r#"{"a":"b"}"#);
        for none in [json!({}), json!({"metadata": {"labels": null}}), json!([])] {
            assert_eq!(Object::new(none.clone()).labels(), "", "{none}");
        }
    }

    #[test]
    fn what_an_object_is_called_is_at_hand_whatever_its_shape() {
        let object = Object::new(json!({"apiVersion": "v1", "kind": "Node", "metadata":
            {"name": "n", "uid": "u", "resourceVersion": "7", "finalizers": ["a/x", 5], "managedFields": []}}));
        assert_eq!(object.kind().kind, "Node");
        assert_eq!((object.name(), object.uid(), object.version().0), ("n", "u", 7));
        assert_eq!(object.finalizers(), ["a/x"]);
        assert_eq!(object.text_at("metadata.managedFields"), None);
        for odd in [
            json!(null),
            json!([1]),
            json!({"metadata": "x"}),
            json!({"metadata": {"name": 5}}),
        ] {
            let object = Object::new(odd.clone());
            assert_eq!((object.name(), object.is_deleting()), ("", false), "{odd}");
            assert_eq!(object.tree(), odd);
        }
    }
}
