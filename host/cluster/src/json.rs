//! Reads JSON from an API server and limits how deep it nests.
//!
//! A real API server accepts objects that nest ten thousand values deep. Walking such an object would
//! overflow the stack. A parser that refuses it would refuse the whole list or watch, and hide every other
//! object of that kind. So a value that lies too deep is read as null. No policy reads that deep.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How many levels of an object are read. Policies parse at most 128 levels (the limit of serde_json), which
/// include the answer or patch around the object.
const DEPTH: usize = 100;

/// Parses a document whose objects stand `above` levels deep in it.
pub(crate) fn parse(bytes: &[u8], above: usize) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Below(DEPTH + above).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Parses a value that may have this many levels.
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
            // `IgnoredAny` skips without recursion, so depth does no harm here.
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
            // The same object, once in a list and once in a watch.
            let alone = parse(format!("{{\"spec\":{deep}}}").as_bytes(), 0).expect("JSON");
            assert_eq!(alone, list["items"][0]);
        }
    }
}
