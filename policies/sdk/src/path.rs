//! The path of the field at which JSON could not be parsed.
//!
//! The parser reports a line and a column. The path is derived from the brackets that are open there.
//! (Tracking the path while parsing would cost time in every step of every policy, and twice the code.)

use std::fmt::Write;

/// A container that is open at a position of a document.
enum Frame<'a> {
    /// An object, at the value of this key; `None` before the key is read.
    Field(Option<&'a str>),
    /// An array, at this element.
    Element(usize),
}

/// The path at a position that `serde_json` reports: `spec.devices[1].mtu`; empty for the document itself.
pub(crate) fn of(json: &str, line: usize, column: usize) -> String {
    let before = json
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum::<usize>();
    // The column is that of the last byte read, which may be the closing bracket of the value.
    let end = (before + column.saturating_sub(1)).min(json.len());
    let mut path = String::new();
    for frame in frames(json, end) {
        match frame {
            Frame::Field(Some(key)) if path.is_empty() => path.push_str(key),
            Frame::Field(Some(key)) => _ = write!(path, ".{key}"),
            Frame::Field(None) => {}
            Frame::Element(index) => _ = write!(path, "[{index}]"),
        }
    }
    path
}

/// The containers that are open at a byte of a document.
fn frames(json: &str, end: usize) -> Vec<Frame<'_>> {
    let bytes = json.as_bytes();
    let mut frames = Vec::new();
    let mut at = 0;
    while at < end {
        match bytes[at] {
            b'{' => frames.push(Frame::Field(None)),
            b'[' => frames.push(Frame::Element(0)),
            b'}' | b']' => _ = frames.pop(),
            b',' => match frames.last_mut() {
                Some(Frame::Field(key)) => *key = None,
                Some(Frame::Element(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let from = at + 1;
                at = closing_quote(bytes, from);
                if let (Some(Frame::Field(key @ None)), true) = (frames.last_mut(), at < end) {
                    *key = json.get(from..at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    if let (Some(b'}'), Some(Frame::Field(key))) = (bytes.get(end), frames.last_mut()) {
        // The error came when the object was complete: it lacks a field.
        *key = None;
    }
    frames
}

fn closing_quote(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Outer {
        name: Option<String>,
        spec: Spec,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Spec {
        devices: Vec<Device>,
        size: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Device {
        mtu: u32,
    }

    fn path(json: &str) -> String {
        let error = serde_json::from_str::<Outer>(json).unwrap_err();
        super::of(json, error.line(), error.column())
    }

    #[test]
    fn an_undecodable_field_is_named_by_its_path() {
        for (json, expected) in [
            (
                r#"{"spec":{"devices":[{"mtu":1},{"mtu":"x"}]}}"#,
                "spec.devices[1].mtu",
            ),
            (
                r#"{"name":"a\"}{b","spec":{"devices":[{"mtu": -5 , "a":1}]}}"#,
                "spec.devices[0].mtu",
            ),
            (r#"{"spec":{"devices":[{}]}}"#, "spec.devices[0]"),
            (r#"{"spec":{"size":1}}"#, "spec"),
            (r#"{"spec":{"size":true,"devices":[]}}"#, "spec.size"),
            ("{\n  \"spec\": {\n    \"devices\": {}\n  }\n}", "spec.devices"),
            (r#"{"spec":{"devices":[]},"more":1}"#, ""),
            ("", ""),
            (r#"{"spec":{"devices":[{"mtu":1"#, "spec.devices[0].mtu"),
        ] {
            assert_eq!(path(json), expected, "{json}");
        }
    }
}
