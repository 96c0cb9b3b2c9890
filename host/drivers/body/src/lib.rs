//! The body of a response as a driver sees it.
//!
//! ```text
//! bytes → json, or xml.rs → a tree → keep.rs → the parts that the driver named, without the secrets that clouds return
//! ```
//!
//! The host and the test kit of drivers share this crate, so that a test shows a driver the same body as the host does.

mod keep;
mod xml;

use serde_json::Value;

/// How many bytes a driver sees of a body that is neither JSON nor XML.
const SHOWN: usize = 512;

/// A body as a driver sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The kept parts; null if the body is neither JSON nor XML.
    pub kept: Value,
    /// The beginning of a body that is neither JSON nor XML.
    pub text: Option<String>,
}

/// Reads a body, and keeps the values at these paths. Paths are dotted and go through lists; `*` keeps everything.
pub fn read(bytes: &[u8], keep: &[impl AsRef<str>]) -> Body {
    match whole(bytes) {
        Some(tree) => Body {
            kept: keep::keep(tree, keep),
            text: None,
        },
        None => {
            let text = String::from_utf8_lossy(bytes);
            let text = &text[..text.floor_char_boundary(SHOWN)];
            Body {
                kept: Value::Null,
                text: (!text.is_empty()).then(|| text.to_owned()),
            }
        }
    }
}

/// The whole body, secrets included, for the logins of the host; `None` if it is neither JSON nor XML.
pub fn whole(bytes: &[u8]) -> Option<Value> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(b'<') => xml::tree(bytes),
        _ => serde_json::from_slice(bytes).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_is_json_or_xml_or_shown_in_part() {
        let all = ["*"];
        assert_eq!(read(br#" {"a": 1}"#, &all).kept, json!({"a": 1}));
        assert_eq!(
            read(b"\n<a><b>1</b></a>", &all).kept,
            json!({"a": [{"b": [{"$text": "1"}]}]})
        );
        let page = read("ä".repeat(1_000).as_bytes(), &all);
        assert_eq!(
            (page.kept, page.text.map(|text| text.len())),
            (Value::Null, Some(512))
        );
        assert_eq!(read(b"", &all).text, None);
        assert!(
            read(b"<a><b></a>", &all).text.is_some(),
            "an element ends where it began"
        );
    }
}
