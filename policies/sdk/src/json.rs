//! JSON as a tree of slices of its text, from which patches are made.
//!
//! All texts here are valid JSON: `serde_json` has written or parsed them before. Scalars stay as they are
//! written, so nothing is decoded, rounded or copied.

use std::fmt::Write;

use serde_json::Value;

/// A JSON value. Scalars and keys are slices of the text, quotes included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json<'a> {
    Scalar(&'a str),
    Array(Vec<Json<'a>>),
    Object(Vec<(&'a str, Json<'a>)>),
}

impl<'a> Json<'a> {
    pub(crate) const NULL: Json<'static> = Json::Scalar("null");

    /// Reads a valid JSON text. Any other text gives some value, never a panic.
    pub(crate) fn read(text: &'a str) -> Json<'a> {
        Reader { text, at: 0 }.value()
    }

    /// The field with this key. The key is a slice of text with its quotes: `"name"`.
    pub(crate) fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(fields) => fields
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    pub(crate) fn elements(&self) -> &[Json<'a>] {
        match self {
            Json::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Appends its text.
    pub(crate) fn write(&self, text: &mut String) {
        match self {
            Json::Scalar(scalar) => text.push_str(scalar),
            Json::Array(elements) => {
                text.push('[');
                for (n, element) in elements.iter().enumerate() {
                    if n > 0 {
                        text.push(',');
                    }
                    element.write(text);
                }
                text.push(']');
            }
            Json::Object(fields) => {
                text.push('{');
                for (n, (key, value)) in fields.iter().enumerate() {
                    if n > 0 {
                        text.push(',');
                    }
                    text.push_str(key);
                    text.push(':');
                    value.write(text);
                }
                text.push('}');
            }
        }
    }
}

/// A value that is nested deeper is kept as one slice. `serde_json` parses no deeper.
const DEPTH: u32 = 128;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(mut self) -> Json<'a> {
        self.nested(DEPTH)
    }

    fn nested(&mut self, depth: u32) -> Json<'a> {
        match (self.peek(), depth) {
            (_, 0) => Json::NULL,
            (b'{', _) => {
                let mut fields = Vec::new();
                while self.another(b'}') {
                    let key = self.scalar();
                    self.skip();
                    fields.push((key, self.nested(depth - 1)));
                }
                Json::Object(fields)
            }
            (b'[', _) => {
                let mut elements = Vec::new();
                while self.another(b']') {
                    elements.push(self.nested(depth - 1));
                }
                Json::Array(elements)
            }
            _ => Json::Scalar(self.scalar()),
        }
    }

    /// Skips an opening bracket or a comma. Returns `false` at the closing bracket, which is skipped too.
    fn another(&mut self, closing: u8) -> bool {
        if self.peek() == closing {
            self.at += 1;
            return false;
        }
        self.skip();
        if self.peek() == closing {
            self.at += 1;
            return false;
        }
        self.at < self.text.len()
    }

    /// The next byte that is not white space; 0 at the end.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return *byte;
            }
            self.at += 1;
        }
        0
    }

    /// Skips the next byte that is not white space.
    fn skip(&mut self) {
        self.peek();
        self.at += 1;
    }

    fn scalar(&mut self) -> &'a str {
        let bytes = self.text.as_bytes();
        let quoted = self.peek() == b'"';
        let from = self.at;
        if quoted {
            self.at += 1;
            while self.at < bytes.len() && bytes[self.at] != b'"' {
                self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
            }
            self.at += 1;
        } else {
            while self.at < bytes.len() && !b",:]} \t\r\n".contains(&bytes[self.at]) {
                self.at += 1;
            }
        }
        self.text.get(from..self.at).unwrap_or("null")
    }
}

/// The text of a JSON value. `serde_json` could write it too, but its tables for fractions are as large as
/// all other data of a policy, and each step begins with copying that data.
pub(crate) fn text(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => write_number(number, text),
        Value::String(string) => write_string(string, text),
        Value::Array(elements) => {
            text.push('[');
            for (n, element) in elements.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                write_value(element, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (n, (key, value)) in fields.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                write_string(key, text);
                text.push(':');
                write_value(value, text);
            }
            text.push('}');
        }
    }
}

fn write_number(number: &serde_json::Number, text: &mut String) {
    let _ = match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(number), ..) => write!(text, "{number}"),
        (_, Some(number), _) => write!(text, "{number}"),
        (.., Some(number)) => write!(text, "{number}"),
        _ => write!(text, "null"),
    };
}

fn write_string(string: &str, text: &mut String) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            control if control < ' ' => _ = write!(text, "\\u{:04x}", u32::from(control)),
            other => text.push(other),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_it_was_read_without_its_white_space() {
        for (text, written) in [
            ("null", "null"),
            (" [ ] ", "[]"),
            ("{}", "{}"),
            (
                r#"{ "a" : [ 1 , -2.50e3 , "x\"]},\\" , true ] , "b" : { "ä" : null } }"#,
                r#"{"a":[1,-2.50e3,"x\"]},\\",true],"b":{"ä":null}}"#,
            ),
            ("[[],{},[{}]]", "[[],{},[{}]]"),
        ] {
            let mut out = String::new();
            Json::read(text).write(&mut out);
            assert_eq!(out, written);
        }
    }

    #[test]
    fn a_value_is_written_as_serde_json_reads_it() {
        let value = serde_json::json!({
            "a\"b\\c\n\u{1}ä": [null, true, false, 0, -7, 18_446_744_073_709_551_615_u64, 0.5, 1e300], "e": {}, "l": [],
        });
        assert_eq!(serde_json::from_str::<Value>(&text(&value)).unwrap(), value);
    }

    #[test]
    fn what_is_not_json_does_not_panic() {
        for text in [
            "", "{", "[", "{\"a\"", "{\"a\":", "[1", "\"", "\"\\", "}", "[}", "{]", "ä", "[1 2]",
        ] {
            let _ = Json::read(text);
        }
    }
}
