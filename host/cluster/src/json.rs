//! Reading JSON of an API server: objects may nest deeper than anything can be done with.
//!
//! A real API server takes objects that nest ten thousand values deep; to walk one ends the stack, and a parser that
//! refuses it refuses the list or the watch that it is in, and with it every other object of its kind. So what lies too
//! deep is read as null: nobody looks there.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How deep an object is read. Parsers of policies stop at 128 (serde_json's limit), with answers and patches around it.
const DEPTH: usize = 100;

/// Reads a document in which objects stand below so many values.
pub(crate) fn parse(bytes: &[u8], above: usize) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Below(DEPTH + above).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// A value that may nest so deep.
#[derive(Clone, Copy)]
struct Below(usize);

impl<'de> DeserializeSeed<'de> for Below {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Below {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Some(deeper) = self.0.checked_sub(1) else {
            // Skipping recurses no more.
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Below(deeper))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Some(deeper) = self.0.checked_sub(1) else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            fields.insert(name, map.next_value_seed(Below(deeper))?);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    #[test]
    fn what_is_read_is_what_is_written() {
        let value = json!({
            "null": null, "yes": true, "less": -5, "most": u64::MAX, "half": 0.5, "text": "a\u{1b}\"é", "": [[], {}, [1]],
        });
        assert_eq!(parse(value.to_string().as_bytes(), 0).expect("JSON"), value);
        for wrong in ["", "{", "[1,]", "{} {}", "nul", "{\"a\" 1}", "\"\u{0}\""] {
            assert!(parse(wrong.as_bytes(), 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_lies_too_deep_is_null_and_everything_beside_it_is_read() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(50_000), close.repeat(50_000));
            let text = format!("{{\"items\":[{{\"spec\":{deep}}},{{\"spec\":7}}]}}");
            let list = parse(text.as_bytes(), 2).expect("JSON");
            assert_eq!(depth(&list["items"][0]), DEPTH);
            assert_eq!(list["items"][1]["spec"], 7);
            // The same object, however it comes.
            let alone = parse(format!("{{\"spec\":{deep}}}").as_bytes(), 0).expect("JSON");
            assert_eq!(alone, list["items"][0]);
        }
    }
}
