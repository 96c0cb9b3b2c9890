//! JSON that a policy wrote, parsed once.
//!
//! A request is matched by its text, checked by its tree, and performed with that same tree. The text is not
//! parsed a second time, so it cannot be checked as one thing and used as another.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{Code, Failure, Json};

/// A JSON document as a policy wrote it. Two documents are equal if their texts are.
#[derive(Clone)]
pub struct Document {
    text: Json,
    tree: Result<Arc<Value>, Arc<str>>,
    /// The bytes that the text and the tree take together.
    bytes: usize,
}

/// The bytes that a value of a tree takes beside its texts, in a list or, with its name, in an object.
const VALUE: usize = 64;

impl Document {
    /// The document's tree.
    ///
    /// # Errors
    /// `invalid-argument` if the text is not JSON. `what` names the document in the message: `vm.clone`,
    /// `patch`.
    pub fn tree(&self, what: &str) -> Result<&Value, Failure> {
        match &self.tree {
            Ok(tree) => Ok(tree),
            Err(why) => Err(Failure::new(
                Code::InvalidArgument,
                format!("{what}: not JSON: {why}"),
            )),
        }
    }

    /// The document's tree, which must be an object.
    ///
    /// # Errors
    /// `invalid-argument` if it is not an object.
    pub fn object(&self, what: &str) -> Result<&Value, Failure> {
        match self.tree(what)? {
            tree if tree.is_object() => Ok(tree),
            _ => Err(Failure::new(
                Code::InvalidArgument,
                format!("{what}: not a JSON object"),
            )),
        }
    }

    /// The document's tree, shared.
    ///
    /// # Errors
    /// As [`Document::tree`].
    pub fn shared_tree(&self, what: &str) -> Result<Arc<Value>, Failure> {
        self.tree(what)?;
        Ok(self.tree.clone().unwrap_or_default())
    }

    /// The bytes that the document takes: a host keeps its text and its tree. A list of short numbers takes some
    /// thirty times as many as its text.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The text, shared.
    pub fn text(&self) -> &Json {
        &self.text
    }
}

impl From<Json> for Document {
    fn from(text: Json) -> Self {
        let tree: Result<Value, serde_json::Error> = serde_json::from_str(&text);
        let of_tree = tree.as_ref().map_or(0, |tree| text.len() + values(tree) * VALUE);
        Document {
            tree: tree.map(Arc::new).map_err(|e| e.to_string().into()),
            bytes: text.len() + of_tree,
            text,
        }
    }
}

/// The number of values in a tree.
fn values(tree: &Value) -> usize {
    let within: usize = match tree {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    };
    1 + within
}

impl From<String> for Document {
    fn from(text: String) -> Self {
        Json::from(text).into()
    }
}

impl From<&str> for Document {
    fn from(text: &str) -> Self {
        Json::from(text).into()
    }
}

impl Deref for Document {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Document {}

impl PartialOrd for Document {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Document {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Document::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_takes_the_bytes_of_its_text_twice_and_more_for_each_value() {
        for (text, values) in [("{}", 1), ("[1,[2,{\"a\":null}]]", 6), ("\"a long text\"", 1)] {
            let bytes = 2 * text.len() + values * VALUE;
            assert_eq!(Document::from(text).bytes(), bytes, "{text}");
        }
        assert_eq!(Document::from("{").bytes(), 1, "there is no tree");
        let document = Document::from("[1]");
        assert_eq!(*document.shared_tree("x").expect("JSON"), json!([1]));
        assert!(Document::from("{").shared_tree("x").is_err());
    }

    #[test]
    fn an_escaped_name_is_the_name_in_the_tree_and_another_text() {
        let plain = Document::from(r#"{"$secret": 1}"#);
        let escaped = Document::from(r#"{"\u0024secret": 1}"#);
        assert_ne!(plain, escaped);
        assert_eq!(plain.tree("x"), escaped.tree("x"));
    }

    #[test]
    fn what_is_not_json_says_so_and_keeps_its_text() {
        let broken = Document::from("{");
        assert_eq!(&*broken, "{");
        let failure = broken.tree("vm.clone").expect_err("not JSON");
        assert_eq!(failure.code, Code::InvalidArgument);
        assert!(failure.message.starts_with("vm.clone: not JSON: "), "{failure}");
        assert!(Document::from("[]").object("patch").is_err());
    }

    #[test]
    fn a_document_is_recorded_as_its_text() {
        let document = Document::from(r#"{"b":1, "a": 2}"#);
        let recorded = serde_json::to_value(&document).expect("text");
        assert_eq!(recorded, json!(r#"{"b":1, "a": 2}"#));
        let back: Document = serde_json::from_value(recorded).expect("text");
        assert_eq!(back, document);
        assert_eq!(back.tree("x"), Ok(&json!({"a": 2, "b": 1})));
    }
}
