//! A Kubernetes object as the host keeps it: its canonical text, shared, with the metadata that the host often needs.
//!
//! The host keeps many objects and edits few of them. So an object has no tree: an edit makes one and drops it
//! afterwards, and a value at a path is read from the text.

use std::borrow::Cow;
use std::sync::Arc;

use polity_kube_rules::{served, text};
use serde_json::Value;

use crate::contract::{Json, Kind, ObjectRef, Precondition};

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
    index: Index,
    version: ResourceVersion,
    generation: Option<u64>,
    is_deleting: bool,
    api_version: Box<str>,
    kind: Box<str>,
    namespace: Option<Box<str>>,
    name: Box<str>,
    uid: Box<str>,
}

/// Where the values at [`INDEXED`] stand in a text; an empty range for a value that is absent. So what the host needs
/// in every pass is found without reading the text, which may be long. No object has four gigabytes.
type Index = [(u32, u32); INDEXED.len()];

/// Each path stands after those that contain it.
const INDEXED: [&str; 7] = [
    "metadata",
    "metadata.finalizers",
    "metadata.labels",
    "metadata.resourceVersion",
    "status",
    "status.conditions",
    "status.pending",
];

/// The metadata that is taken out of every text.
const METADATA: [&str; 8] = [
    "deletionTimestamp",
    "finalizers",
    "generation",
    "labels",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// The reference that names an object of which only the tree is there.
pub fn reference_of(object: &Value) -> ObjectRef {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
        },
        namespace: metadata["namespace"].as_str().map(str::to_owned),
        name: text(&metadata["name"]),
    }
}

impl Object {
    /// Takes an object as an API server sends it. Missing metadata reads as empty.
    pub fn new(mut value: Value) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Object::of(text::canonical(value).into())
    }

    /// Takes the text of an object as an API server sends it. A value that nests deeper than so many levels reads as null.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn read(text: &[u8], levels: usize) -> Result<Self, serde_json::Error> {
        let text = served::canonical(text, &[], levels)?;
        Ok(Object::of(text.into()))
    }

    /// The same for an item of a list, which does not say its kind itself.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn read_as(kind: &Kind, text: &[u8], levels: usize) -> Result<Self, serde_json::Error> {
        let kind = [("apiVersion", &*kind.api_version), ("kind", &*kind.kind)];
        let text = served::canonical(text, &kind, levels)?;
        Ok(Object::of(text.into()))
    }

    /// The object with this canonical text: the whole, or a part that contains [`KEPT_METADATA`] and what identifies the
    /// object.
    ///
    /// [`KEPT_METADATA`]: crate::call::KEPT_METADATA
    pub(crate) fn of(json: Json) -> Self {
        let [api_version, kind, metadata, status] =
            text::fields(&json, ["apiVersion", "kind", "metadata", "status"]);
        let of_metadata = metadata.map(|metadata| text::fields(metadata, METADATA));
        let [
            deletion,
            finalizers,
            generation,
            labels,
            name,
            namespace,
            version,
            uid,
        ] = of_metadata.unwrap_or_default();
        let of_status = status.map(|status| text::fields(status, ["conditions", "pending"]));
        let [conditions, pending] = of_status.unwrap_or_default();
        let indexed = [metadata, finalizers, labels, version, status, conditions, pending];
        let boxed = |value: Option<&str>| value.and_then(text::unquoted).map(Box::from);
        let number = version.and_then(text::unquoted).and_then(|v| v.parse().ok());
        let inner = Inner {
            index: indexed.map(|value| place_of(&json, value)),
            version: ResourceVersion(number.unwrap_or_default()),
            generation: generation.and_then(|generation| generation.parse().ok()),
            is_deleting: deletion.is_some_and(|deletion| deletion != "null"),
            api_version: boxed(api_version).unwrap_or_default(),
            kind: boxed(kind).unwrap_or_default(),
            namespace: boxed(namespace),
            name: boxed(name).unwrap_or_default(),
            uid: boxed(uid).unwrap_or_default(),
            json,
        };
        Object(Arc::new(inner))
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
        let within = |(indexed, at): (&&str, &(u32, u32))| {
            let rest = path.strip_prefix(indexed)?;
            let rest = match rest.strip_prefix('.') {
                None if !rest.is_empty() => return None,
                rest => rest,
            };
            Some((self.indexed(*at), rest))
        };
        match INDEXED.iter().zip(&self.0.index).rev().find_map(within) {
            None => text::at(&self.0.json, path),
            Some((part, Some(rest))) => text::at(part, rest),
            Some((part, None)) => Some(part).filter(|part| !part.is_empty()),
        }
    }

    /// The value at a dotted path; `None` if it is absent or null.
    pub fn at(&self, path: &str) -> Option<Value> {
        serde_json::from_str(self.text_at(path)?).ok()
    }

    /// The string at a dotted path; `None` if the value is no string.
    pub fn str_at(&self, path: &str) -> Option<Cow<'_, str>> {
        text::unquoted(self.text_at(path)?)
    }

    fn indexed(&self, (start, end): (u32, u32)) -> &str {
        let range = start as usize..end as usize;
        self.0.json.get(range).unwrap_or_default()
    }

    /// The text without the version, in two pieces. The version changes with every write, so comparisons leave it
    /// out.
    pub fn content(&self) -> [&str; 2] {
        let [.., version, _, _, _] = self.0.index;
        without(&self.0.json, version)
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
        let spec = |object| {
            let mut fields = text::all_fields(Object::json(object));
            for field in ["metadata", "status"] {
                fields.remove(field);
            }
            fields
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
        let [_, _, labels, ..] = self.0.index;
        self.indexed(labels)
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

/// The pieces of a text before and after a value of its index.
fn without(text: &str, (start, end): (u32, u32)) -> [&str; 2] {
    let (before, after) = (text.get(..start as usize), text.get(end as usize..));
    if start < end {
        [before.unwrap_or_default(), after.unwrap_or_default()]
    } else {
        [text, ""]
    }
}

/// Where a slice of a text stands in it. Null counts as absent.
fn place_of(text: &str, value: Option<&str>) -> (u32, u32) {
    let place = value.filter(|value| *value != "null").and_then(|value| {
        let start = (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
        Some((
            u32::try_from(start).ok()?,
            u32::try_from(start + value.len()).ok()?,
        ))
    });
    place.unwrap_or_default()
}

/// The text of an object, or of a part that contains its version, without the version.
pub(crate) fn content(text: &str) -> [&str; 2] {
    let [metadata] = text::fields(text, ["metadata"]);
    let version = metadata.and_then(|metadata| text::fields(metadata, ["resourceVersion"])[0]);
    without(text, place_of(text, version))
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
        let part = Object::of(crate::projection::project(object.json(), ["metadata.labels"]).into());
        assert_eq!(part.labels(), r#"{"a":"b"}"#);
        for none in [json!({}), json!({"metadata": {"labels": null}}), json!([])] {
            assert_eq!(Object::new(none.clone()).labels(), "", "{none}");
        }
    }

    #[test]
    fn a_value_is_found_by_its_path_whether_it_is_in_the_index_or_not() {
        let object = Object::new(json!({"apiVersion": "v1", "data": {"status": {"pending": [9]}},
            "metadata": {"name": "n", "labels": {"a": "b", "c.d": "e"}, "finalizers": ["f"], "labelsX": 1},
            "status": {"conditions": [{"type": "A"}], "pending": null, "phase": "x"}, "statusX": 2}));
        for (path, found) in [
            ("metadata.labels", Some(r#"{"a":"b","c.d":"e"}"#)),
            ("metadata.labels.a", Some(r#""b""#)),
            ("metadata.labels.x", None),
            ("metadata.labelsX", Some("1")),
            ("metadata.finalizers", Some(r#"["f"]"#)),
            ("metadata.resourceVersion", None),
            ("metadata.name", Some(r#""n""#)),
            ("status.conditions", Some(r#"[{"type":"A"}]"#)),
            ("status.pending", None),
            ("status.phase", Some(r#""x""#)),
            ("statusX", Some("2")),
            ("data.status.pending", Some("[9]")),
            ("spec", None),
        ] {
            assert_eq!(object.text_at(path), found, "{path}");
            assert_eq!(text::at(object.json(), path), found, "{path}");
        }
        assert_eq!(object.str_at("status.phase").as_deref(), Some("x"));
        assert_eq!(object.at("statusX"), Some(json!(2)));
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
