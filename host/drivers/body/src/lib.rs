//! The body of a response as a driver sees it.
//!
//! ```text
//! bytes → json, or xml.rs → a tree → keep.rs → the parts that the driver named, without the secrets that clouds return
//! ```
//!
//! [`is_refusal`] reads a whole body: does it say that nothing was done?
//!
//! The host and the test kit of drivers share this crate, so that a test shows a driver the same body as the host does.

mod keep;
mod refusal;
mod xml;

pub use refusal::is_refusal;

use serde_json::Value;

/// How many bytes a driver sees of a body that is neither JSON nor XML.
const SHOWN: usize = 512;

/// The most values of a body. The largest responses of clouds, pages of a thousand machines, have a tenth of them.
///
/// A value takes at most 512 bytes of memory beside its texts (an element of XML is a field, a list and an object). So a body
/// of 4 MiB takes 132 MiB at most while it is read, and not the 2 GB of a million elements.
pub const MOST_VALUES: usize = 1 << 18;

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
            // A character has at most four bytes.
            let beginning = &bytes[..bytes.len().min(SHOWN + 4)];
            let text = String::from_utf8_lossy(beginning);
            let text = &text[..text.floor_char_boundary(SHOWN)];
            Body {
                kept: Value::Null,
                text: (!text.is_empty()).then(|| text.to_owned()),
            }
        }
    }
}

/// The whole body, secrets included, for the logins of the host; `None` if it is neither JSON nor XML, deeper than 64 elements or
/// 127 values, or has more than [`MOST_VALUES`] values.
pub fn whole(bytes: &[u8]) -> Option<Value> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(b'<') => xml::tree(bytes),
        _ if values(bytes) > MOST_VALUES => None,
        _ => serde_json::from_slice(bytes).ok(),
    }
}

/// How many values a JSON document has at most: one, and one more after each mark outside of texts.
fn values(json: &[u8]) -> usize {
    let (mut count, mut in_text, mut is_escaped) = (1, false, false);
    for byte in json {
        match (in_text, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
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

    #[test]
    fn a_body_of_too_many_values_is_not_read() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(whole(list(MOST_VALUES - 1).as_bytes()).is_some());
        for many in [
            list(2 << 20),
            format!("[{}{{}}]", "{},".repeat(1 << 20)),
            format!("<a>{}</a>", "<b/>".repeat(1 << 20)),
            format!(
                "<a {}/>",
                (0..300_000)
                    .map(|n| format!("a{n}=''"))
                    .collect::<Vec<_>>()
                    .join(" ")
            ),
            "[".repeat(4 << 20),
        ] {
            let body = read(many.as_bytes(), &["*"]);
            assert_eq!(body.kept, Value::Null);
            assert!(body.text.is_some_and(|text| text.len() <= SHOWN), "{:.20}", many);
        }
        let text = format!(r#"["{}\\\"{}"]"#, ",[{".repeat(1 << 18), ",".repeat(1 << 18));
        assert!(whole(text.as_bytes()).is_some(), "marks in a text are no values");
    }
}
