//! JSON bodies: the value, and the fields that occur more than once in the text.

use std::fmt::{self, Write as _};

use polity_kube_rules::schema::{MOST, shortened};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses JSON. Returns the value and the paths of duplicate fields, such as `spec.disks[0].size`; the last
/// of them counts.
pub(crate) fn parse(text: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut duplicates = Duplicates::default();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Reader(&mut duplicates).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, duplicates.found))
}

#[derive(Default)]
struct Duplicates {
    /// The path of the value that is read now.
    path: String,
    found: Vec<String>,
}

impl Duplicates {
    fn note(&mut self) {
        if self.found.len() < MOST {
            let path = shortened(self.path.clone());
            if !self.found.contains(&path) {
                self.found.push(path);
            }
        }
    }

    /// Enters a field. Returns the length of the path before it, to return to.
    fn enter(&mut self, field: &str) -> usize {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push('.');
        }
        self.path.push_str(field);
        outer
    }
}

/// Reads one value. The parser limits the depth.
struct Reader<'a>(&'a mut Duplicates);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let outer = self.0.path.len();
        let mut list = Vec::new();
        loop {
            // Writing to a string cannot fail.
            let _ = write!(self.0.path, "[{}]", list.len());
            let item = items.next_element_seed(Reader(self.0))?;
            self.0.path.truncate(outer);
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(field) = entries.next_key::<String>()? {
            let outer = self.0.enter(&field);
            if fields.contains_key(&field) {
                self.0.note();
            }
            let value = entries.next_value_seed(Reader(self.0))?;
            self.0.path.truncate(outer);
            fields.insert(field, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplicates(text: &str) -> Vec<String> {
        parse(text.as_bytes()).unwrap().1
    }

    #[test]
    fn a_value_is_read_as_by_serde_json() {
        let text =
            r#" {"a":[null,true,-1,18446744073709551615,1.5e300,"\u00e9\ud83d\ude00"],"b":{"":{}},"c":[]} "#;
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            (serde_json::from_str(text).unwrap(), Vec::new())
        );
        for bad in ["", "{", "{} x", "{\"a\":1,}", "[1 2]", "\"\u{1}\"", "1e999"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_duplicate_field_is_found_wherever_it_stands() {
        let text = r#"{"a":1,"b":{"c":1,"c":2,"d":[{"e":{}},{"e":1,"e":2,"e":3}]},"a":{"x":1,"x":2}}"#;
        assert_eq!(duplicates(text), ["b.c", "b.d[1].e", "a", "a.x"]);
        assert_eq!(duplicates(r#"[{"op":1,"op":2}]"#), ["[0].op"]);
        assert_eq!(duplicates(r#"{"a":1,"\u0061":2}"#), ["a"]);
        assert_eq!(parse(br#"{"a":1,"a":2}"#).unwrap().0["a"], 2);
    }

    #[test]
    fn what_is_told_of_duplicates_is_bounded() {
        let many: Vec<String> = (0..500).map(|n| format!("\"f{n}\":1,\"f{n}\":2")).collect();
        let text = format!("{{\"{}\":{{{}}}}}", "ä".repeat(1_000), many.join(","));
        assert_eq!(duplicates(&text).len(), 1, "paths are alike once they are cut");
        let text = format!("{{{}}}", many.join(","));
        assert_eq!(duplicates(&text).len(), MOST);
    }
}
