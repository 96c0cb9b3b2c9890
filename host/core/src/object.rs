//! A Kubernetes object as the host keeps it: its canonical text, shared, with its metadata at hand.
//!
//! Many are kept and few are taken apart. So there is no tree of one: whoever edits it makes that for as long as it edits,
//! and what stands at a path is read from the text.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use polity_kube_rules::text;
use serde_json::Value;

use crate::contract::{Json, Kind, ObjectRef, Precondition};

/// An object's version. Kubernetes promises since 1.35 that these compare as numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct ResourceVersion(pub u64);

/// A Kubernetes object, immutable and cheap to clone. Its `managedFields` were dropped.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    /// Canonical: two objects are equal if this is.
    json: Json,
    /// Where `metadata.resourceVersion` stands in it.
    version_at: Range<usize>,
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
    /// Takes an object as an API server serves it. Missing metadata reads as empty.
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
        inner.version_at = version_at(&inner.json);
        Object(Arc::new(inner))
    }

    /// The same object with a part of its text, which holds all that identifies it and [`KEPT_METADATA`].
    ///
    /// [`KEPT_METADATA`]: crate::call::KEPT_METADATA
    pub(crate) fn with_part(&self, part: String) -> Self {
        let whole = &self.0;
        Object(Arc::new(Inner {
            version_at: version_at(&part),
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

    /// The whole object, to be edited: made anew.
    pub fn tree(&self) -> Value {
        text::tree(&self.0.json)
    }

    /// What stands at a dotted path, as text; none where that is nothing or null.
    pub fn text_at(&self, path: &str) -> Option<&str> {
        text::at(&self.0.json, path)
    }

    /// What stands at a dotted path; none where that is nothing or null.
    pub fn at(&self, path: &str) -> Option<Value> {
        text::value_at(&self.0.json, path)
    }

    /// The text that stands at a dotted path; none where it is something else.
    pub fn str_at(&self, path: &str) -> Option<Cow<'_, str>> {
        text::str_at(&self.0.json, path)
    }

    /// The object as text, in two pieces: without its version, which changes with every write.
    pub fn content(&self) -> [&str; 2] {
        without(&self.0.json, &self.0.version_at)
    }

    /// Whether two versions of an object say the same, but for the version.
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

    /// That it is still this very version.
    pub fn precondition(&self) -> Precondition {
        Precondition {
            uid: self.uid().to_owned(),
            resource_version: Some(self.version().0.to_string()),
        }
    }

    /// `metadata.generation`; none for kinds without one.
    pub fn generation(&self) -> Option<u64> {
        self.0.generation
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

    /// The reference that names it.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef {
            cluster: None,
            kind: self.kind(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    /// `metadata.finalizers`
    pub fn finalizers(&self) -> Vec<String> {
        let held = self.text_at("metadata.finalizers");
        let held: Vec<Value> = held
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        held.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether `metadata.finalizers` holds this one.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|held| held == finalizer)
    }
}

/// A text in two pieces, without what stands between.
fn without<'a>(text: &'a str, range: &Range<usize>) -> [&'a str; 2] {
    let before = text.get(..range.start).unwrap_or(text);
    [before, text.get(range.end..).unwrap_or_default()]
}

/// Where the version of an object stands in its text; at its end where it has none.
fn version_at(text: &str) -> Range<usize> {
    match text::at(text, "metadata.resourceVersion") {
        None => text.len()..text.len(),
        Some(version) => {
            // It is a slice of the text.
            let start = (version.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            start..start + version.len()
        }
    }
}

/// What an object's text, or a part of it that holds its version, says but for the version.
pub(crate) fn content(text: &str) -> [&str; 2] {
    without(text, &version_at(text))
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
