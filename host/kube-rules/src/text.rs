//! Objects as text: one spelling of each, and access to values by path without a tree.
//!
//! Servers spell a value in several ways (`1.0` and `1`, `<` escaped or not, fields in any order), so their
//! texts are never compared. [`canonical`] makes the one spelling that is: names sorted, no escape that JSON
//! does not demand, and integral numbers that a double holds exactly written as integers. Everywhere else in
//! this module, a text is canonical.
//!
//! A part of a text is a slice of it, and is canonical too. Finding it reads what stands before it and
//! allocates nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, value::RawValue};

/// The largest number up to which a double tells integers apart (2^53). Larger numbers stay as they are.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The canonical text of a value.
pub fn canonical(mut value: Value) -> String {
    spell_numbers(&mut value);
    // Writing a tree never fails, and this is faster than its `Display`.
    serde_json::to_string(&value).unwrap_or_default()
}

fn spell_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(spell_numbers),
        Value::Array(items) => items.iter_mut().for_each(spell_numbers),
        Value::Number(number) if number.is_f64() => {
            if let Some(integer) = number.as_f64().and_then(integer) {
                *value = integer.into();
            }
        }
        _ => {}
    }
}

/// The integer that a double is exactly, if it is one.
pub(crate) fn integer(number: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "it is integral and below 2^53")]
    let integer = || number as i64;
    (number.fract() == 0.0 && number.abs() < EXACT).then(integer)
}

/// Whether the text of a value has more bytes than this, where a number counts as four. It reads no more of the value
/// than it must.
pub fn is_longer(value: &Value, bytes: usize) -> bool {
    left(value, bytes).is_none()
}

/// What is left of so many bytes beside the text of a value.
fn left(value: &Value, bytes: usize) -> Option<usize> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => bytes.checked_sub(4),
        Value::String(text) => bytes.checked_sub(text.len() + 2),
        Value::Array(items) => items.iter().try_fold(bytes.checked_sub(2)?, |bytes, item| {
            left(item, bytes)?.checked_sub(1)
        }),
        Value::Object(fields) => fields
            .iter()
            .try_fold(bytes.checked_sub(2)?, |bytes, (name, value)| {
                left(value, bytes)?.checked_sub(name.len() + 4)
            }),
    }
}

/// The value at a dotted path, as text; `None` if it is absent or null.
pub fn at<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    let found = path.split('.').try_fold(text, field)?;
    (found != "null").then_some(found)
}

/// The string at a dotted path; `None` if the value is absent or no string.
pub fn str_at<'a>(text: &'a str, path: &str) -> Option<Cow<'a, str>> {
    unquoted(at(text, path)?)
}

/// The value at a dotted path; `None` if it is absent or null.
pub fn value_at(text: &str, path: &str) -> Option<Value> {
    serde_json::from_str(at(text, path)?).ok()
}

/// The tree of a text; null if it is not JSON.
pub fn tree(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// A text with only the values at these dotted paths. A path through a value that is no object leaves an
/// empty object.
pub fn projection<'a>(text: &str, paths: impl IntoIterator<Item = &'a str>) -> String {
    let mut kept = Kept::Parts(BTreeMap::new());
    for path in paths {
        kept.add(path);
    }
    let mut out = String::with_capacity(text.len().min(1_024));
    kept.write(text, &mut out);
    out
}

/// The content of a JSON string; `None` if the text is no string.
pub fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    let plain = text.strip_prefix('"')?.strip_suffix('"')?;
    if plain.contains('\\') {
        serde_json::from_str(text).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(plain))
    }
}

/// The value of one field of an object.
fn field<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let [found] = fields(object, [name]);
    found
}

/// The values of these different fields of an object as text, read in one go; `None` for a field that is absent.
pub fn fields<'a, const N: usize>(object: &'a str, names: [&str; N]) -> [Option<&'a str>; N] {
    let mut found = [None; N];
    let seek = Seek {
        names: &names,
        found: &mut found,
    };
    // The parser stops with an error as soon as it has found all fields: the rest is not needed.
    let _ = serde_json::Deserializer::from_str(object).deserialize_map(seek);
    found
}

/// All fields of an object with their values as text; empty if the text is no object.
pub fn all_fields(object: &str) -> BTreeMap<String, &str> {
    let all: BTreeMap<String, &RawValue> = serde_json::from_str(object).unwrap_or_default();
    all.into_iter().map(|(name, value)| (name, value.get())).collect()
}

struct Seek<'n, 'f, 'a> {
    names: &'n [&'n str],
    found: &'f mut [Option<&'a str>],
}

impl<'a> Visitor<'a> for Seek<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut left = self.names.len();
        while let Some(index) = fields.next_key_seed(IndexIn(self.names))? {
            let Some(found) = index.and_then(|index| self.found.get_mut(index)) else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            *found = Some(fields.next_value::<&RawValue>()?.get());
            left -= 1;
            if left == 0 {
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }
}

/// The index of a name in a list of names.
struct IndexIn<'n>(&'n [&'n str]);

impl<'a> DeserializeSeed<'a> for IndexIn<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'a>>(self, name: D) -> Result<Option<usize>, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for IndexIn<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|wanted| *wanted == name))
    }
}

/// The parts of a value that a projection keeps.
enum Kept<'p> {
    Whole,
    Parts(BTreeMap<&'p str, Kept<'p>>),
}

impl<'p> Kept<'p> {
    fn add(&mut self, path: &'p str) {
        let Kept::Parts(parts) = self else { return };
        match path.split_once('.') {
            None => {
                parts.insert(path, Kept::Whole);
            }
            Some((head, rest)) => parts
                .entry(head)
                .or_insert_with(|| Kept::Parts(BTreeMap::new()))
                .add(rest),
        }
    }

    fn write(&self, text: &str, out: &mut String) {
        match self {
            Kept::Whole => out.push_str(text),
            Kept::Parts(parts) => {
                out.push('{');
                let before = out.len();
                let write = Write { parts, out, before };
                // A value that is no object has no parts, so nothing is written.
                let _ = serde_json::Deserializer::from_str(text).deserialize_map(write);
                out.push('}');
            }
        }
    }
}

struct Write<'k, 'p, 'o> {
    parts: &'k BTreeMap<&'p str, Kept<'p>>,
    out: &'o mut String,
    before: usize,
}

impl<'a> Visitor<'a> for Write<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<&RawValue>()? {
            let name = name.get();
            let Some(kept) = unquoted(name).and_then(|plain| self.parts.get(&*plain)) else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.out.len() > self.before {
                self.out.push(',');
            }
            self.out.push_str(name);
            self.out.push(':');
            kept.write(fields.next_value::<&RawValue>()?.get(), self.out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_longer_than_somewhat_less_than_its_text_and_not_than_somewhat_more() {
        let many: Vec<Value> = (1_000..1_500).map(Value::from).collect();
        for value in [
            json!("some words of text"),
            json!({"a": {"b": ["c", null, true]}, "d": "e"}),
            Value::from(many),
            json!({"metadata": {"name": "x"}, "spec": "y".repeat(100)}),
        ] {
            let length = canonical(value.clone()).len();
            assert!(is_longer(&value, length * 9 / 10), "{value}");
            assert!(!is_longer(&value, length * 11 / 10 + 4), "{value}");
        }
    }

    #[test]
    fn one_value_has_one_text_however_a_server_spells_it() {
        for (one, other) in [
            (r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#),
            (r#"{"n":1}"#, r#"{"n":1.0}"#),
            (r#"{"n":1e2}"#, r#"{"n":100}"#),
            (r#"{"n":-0.0}"#, r#"{"n":0}"#),
            (r#"{"t":"<&>é/"}"#, r#"{"t":"\u003c\u0026\u003e\u00e9\/"}"#),
            (r#"{"n":1.5}"#, r#"{"n":15e-1}"#),
        ] {
            let text = |text: &str| canonical(serde_json::from_str(text).expect("JSON"));
            assert_eq!(text(one), text(other));
        }
    }

    #[test]
    fn integers_of_64_bits_keep_every_digit() {
        for number in [
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551615",
        ] {
            let text = format!("[{number}]");
            assert_eq!(canonical(serde_json::from_str(&text).expect("JSON")), text);
        }
        assert_eq!(
            canonical(json!([9_007_199_254_740_992.0])),
            "[9007199254740992.0]"
        );
        assert_eq!(canonical(json!([9_007_199_254_740_991.0])), "[9007199254740991]");
    }

    #[test]
    fn a_path_finds_what_stands_there_and_nothing_else() {
        let text =
            canonical(json!({"a": {"b": [1, {"c": 2}], "n": null, "t": "x\"y", "u": "plain"}, "é": 1}));
        for (path, found) in [
            ("a.b", Some(r#"[1,{"c":2}]"#)),
            ("a.t", Some(r#""x\"y""#)),
            ("é", Some("1")),
            ("a.n", None),
            ("a.n.x", None),
            ("a.b.c", None),
            ("a.x", None),
            ("b", None),
            ("", None),
        ] {
            assert_eq!(at(&text, path), found, "{path}");
        }
        assert_eq!(str_at(&text, "a.t").as_deref(), Some("x\"y"));
        assert_eq!(str_at(&text, "a.u").as_deref(), Some("plain"));
        assert_eq!(str_at(&text, "a.b"), None);
        assert_eq!(value_at(&text, "a.b"), Some(json!([1, {"c": 2}])));
        assert_eq!(value_at("[1]", "a"), None);
    }

    #[test]
    fn fields_are_found_in_one_go_whatever_their_order_and_those_that_are_missing_are_not() {
        let text = r#"{"a":1,"b\"c":{"a":2},"z":null}"#;
        assert_eq!(
            fields(text, ["z", "b\"c", "none", "a"]),
            [Some("null"), Some(r#"{"a":2}"#), None, Some("1")]
        );
        assert_eq!(fields("[1]", ["a"]), [None]);
        let names: Vec<_> = all_fields(text).into_keys().collect();
        assert_eq!(names, ["a", "b\"c", "z"]);
        assert!(all_fields("1").is_empty());
    }

    #[test]
    fn a_projection_is_canonical_and_holds_what_was_named() {
        let text = canonical(json!({"a": {"b": 1, "c": {"d": [1], "e": 2}}, "f": 5, "g\"h": 6, "z": {}}));
        for (paths, kept) in [
            (vec!["a.c.d", "z"], json!({"a": {"c": {"d": [1]}}, "z": {}})),
            (vec!["a.c", "a.c.d"], json!({"a": {"c": {"d": [1], "e": 2}}})),
            (vec!["a.c.d", "a.c"], json!({"a": {"c": {"d": [1], "e": 2}}})),
            (vec!["a.x", "y"], json!({"a": {}})),
            (vec!["f.x"], json!({"f": {}})),
            (vec!["g\"h"], json!({"g\"h": 6})),
            (vec![], json!({})),
        ] {
            assert_eq!(
                projection(&text, paths.iter().copied()),
                canonical(kept),
                "{paths:?}"
            );
        }
    }
}
