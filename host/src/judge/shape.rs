//! Shapes of texts: what is left when names, times and numbers are taken out, so that the same difference of many objects is one.

use std::borrow::Cow;

use polity_core::record::PassRecord;
use serde_json::Value;

/// The most characters of a shape.
const LONGEST: usize = 60;
/// Runs of at least so many hexadecimal digits are ids.
const ID: usize = 8;
/// Behind another one, runs of so many belong to the same id, as in a UUID.
const GROUP: usize = 4;
/// The shortest name that is looked for in texts. Shorter ones are in any text by chance.
const NAME: usize = 2;

/// What stands for the object of a pass in its texts.
pub(super) struct Names(Vec<(String, &'static str)>);

impl Names {
    pub(super) fn of(pass: &PassRecord) -> Self {
        let namespace = pass.key.namespace.as_deref().unwrap_or_default();
        let named = [
            (pass.uid.as_str(), "$uid"),
            (&*pass.key.name, "$name"),
            (namespace, "$namespace"),
        ];
        let named = named.into_iter().filter(|(text, _)| text.len() >= NAME);
        Names(named.map(|(text, mark)| (text.to_owned(), mark)).collect())
    }

    /// The shape of a value.
    pub(super) fn shape(&self, value: &Value) -> String {
        let shape = match value {
            Value::String(text) => self.of_text(text),
            other => self.within(other).to_string(),
        };
        cut(shape)
    }

    /// The shape of a text.
    pub(super) fn of_text(&self, text: &str) -> String {
        cut(self.of_path(text))
    }

    /// The shape of a text that may be long: a path.
    pub(super) fn of_path(&self, text: &str) -> String {
        if is_duration(text) {
            return text.to_owned();
        }
        let mut named = Cow::Borrowed(text);
        for (name, mark) in &self.0 {
            named = Cow::Owned(replaced(&named, name, mark));
        }
        without_numbers(&named)
    }

    /// The value with shapes in place of its texts.
    fn within(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.of_text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.within(item)).collect(),
            Value::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| (name.clone(), self.within(value)));
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }
}

/// A text that is shown, cut.
pub(super) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Whether a text is a length of time as Go writes it: `20s`, `1h0m0s`. Those are settings, and stay as they are.
fn is_duration(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || "hmsuµn.".contains(c);
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(['h', 'm', 's'])
        && text.chars().all(is_part)
}

/// Replaces a word, but not a part of one.
fn replaced(text: &str, word: &str, mark: &str) -> String {
    let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut shape = String::with_capacity(text.len());
    let mut end = 0;
    for (at, found) in text.match_indices(word) {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        if !is_inside(before) && !is_inside(after) {
            shape.push_str(&text[end..at]);
            shape.push_str(mark);
            end = at + found.len();
        }
    }
    shape.push_str(&text[end..]);
    shape
}

/// The text with `<time>` in place of times, and `*` in place of numbers and ids.
fn without_numbers(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_start = !shape.ends_with(|c: char| c.is_ascii_alphanumeric());
        let hex = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let has_digit = rest[..hex].bytes().any(|c| c.is_ascii_digit());
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (length, mark) = match time_at(rest) {
            Some(length) => (length, "<time>"),
            None if is_start && has_digit && (hex >= ID || hex >= GROUP && shape.ends_with("*-")) => {
                (hex, "*")
            }
            None if digits > 0 => (digits, "*"),
            None => (first.len_utf8(), ""),
        };
        match mark {
            "" => shape.push(first),
            // An id of several parts is one.
            "*" if shape.ends_with("*-") => drop(shape.pop()),
            mark => shape.push_str(mark),
        }
        rest = &rest[length..];
    }
    shape
}

/// The length of the time (RFC 3339) with which a text begins.
fn time_at(text: &str) -> Option<usize> {
    const PATTERN: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let fits = |(is, wanted): (&u8, &u8)| match wanted {
        b'0' => is.is_ascii_digit(),
        other => is == other,
    };
    if bytes.len() <= PATTERN.len() || !bytes.iter().zip(PATTERN).all(fits) {
        return None;
    }
    let mut end = PATTERN.len();
    if bytes[end] == b'.' {
        end += 1 + bytes[end + 1..].iter().take_while(|c| c.is_ascii_digit()).count();
    }
    match bytes.get(end)? {
        b'Z' => Some(end + 1),
        b'+' | b'-' if bytes.len() >= end + 6 => Some(end + 6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names() -> Names {
        Names(vec![
            ("machine-03".into(), "$name"),
            ("team-a".into(), "$namespace"),
        ])
    }

    #[test]
    fn a_shape_has_no_names_times_numbers_and_ids_and_keeps_settings() {
        for (text, shape) in [
            ("Running", "Running"),
            ("20s", "20s"),
            ("1h0m0s", "1h0m0s"),
            ("team-a/machine-03 is up", "$namespace/$name is up"),
            ("machine-031 of team-ab", "machine-* of team-ab"),
            ("since 2026-11-27T19:00:00.5Z", "since <time>"),
            ("2026-11-27T19:00:00+01:00 and 7 more", "<time> and * more"),
            ("vm-42 at 10.0.0.7", "vm-* at *.*.*.*"),
            ("4212f7e8-1b2c-9d0e-0000-00aa11bb22cc", "*"),
            ("deadbeef of facade", "deadbeef of facade"),
            ("größe 3", "größe *"),
        ] {
            assert_eq!(names().of_text(text), shape, "{text}");
        }
        assert_eq!(
            names().shape(&json!({"a": ["machine-03", 7, null]})),
            r#"{"a":["$name",7,null]}"#
        );
        assert_eq!(names().of_text(&"ä".repeat(100)).chars().count(), LONGEST + 1);
    }
}
