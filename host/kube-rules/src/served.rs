//! Objects as servers send them: from their text to the canonical text ([`crate::text`]) without a tree between.
//!
//! A host reads every change of every object. Most of a text is copied; only where the fields of a JSON object are in
//! another order than by name are they moved, once the last of them is there.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::text::integer;

/// The canonical text of an object without its `managedFields`, and with these texts in place of its own fields of these
/// names. A value that nests deeper than so many levels becomes null.
///
/// # Errors
/// The text is not JSON.
pub fn canonical(served: &[u8], known: &[(&str, &str)], levels: usize) -> Result<String, serde_json::Error> {
    let mut out = Vec::with_capacity(served.len());
    let mut deserializer = serde_json::Deserializer::from_slice(served);
    let whole = Writer {
        out: &mut out,
        levels,
        part: Part::Whole(known),
    };
    whole.deserialize(&mut deserializer)?;
    deserializer.end()?;
    String::from_utf8(out).map_err(Error::custom)
}

/// Writes one value.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    levels: usize,
    part: Part<'o>,
}

/// The part of an object that a value is.
#[derive(Clone, Copy, PartialEq)]
enum Part<'o> {
    /// All of it, with what is known of it.
    Whole(&'o [(&'o str, &'o str)]),
    Metadata,
    Other,
}

impl Writer<'_> {
    fn write<E: Error>(self, value: impl Serialize) -> Result<(), E> {
        serde_json::to_writer(self.out, &value).map_err(E::custom)
    }

    fn null(self) {
        self.out.extend_from_slice(b"null");
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.null();
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match integer(value) {
            Some(integer) => self.write(integer),
            None => self.write(value),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some(levels) = self.levels.checked_sub(1) else {
            // `IgnoredAny` skips without recursion, so depth does no harm here.
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            self.null();
            return Ok(());
        };
        self.out.push(b'[');
        let start = self.out.len();
        loop {
            let end = self.out.len();
            if end > start {
                self.out.push(b',');
            }
            let item = Writer {
                out: &mut *self.out,
                levels,
                part: Part::Other,
            };
            if seq.next_element_seed(item)?.is_none() {
                self.out.truncate(end);
                self.out.push(b']');
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some(levels) = self.levels.checked_sub(1) else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            self.null();
            return Ok(());
        };
        self.out.push(b'{');
        let mut fields = Fields::at(self.out.len());
        let known = match self.part {
            Part::Whole(known) => known,
            Part::Metadata | Part::Other => &[],
        };
        for (name, text) in known {
            let start = fields.begin(name, self.out).map_err(Error::custom)?;
            serde_json::to_writer(&mut *self.out, text).map_err(Error::custom)?;
            fields.add(Cow::Owned((*name).to_owned()), start, self.out.len());
        }
        while let Some(name) = map.next_key_seed(Name)? {
            let is_known = known.iter().any(|(known, _)| name == *known);
            if is_known || (self.part == Part::Metadata && name == "managedFields") {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let part = match self.part {
                Part::Whole(_) if name == "metadata" => Part::Metadata,
                _ => Part::Other,
            };
            let start = fields.begin(&name, self.out).map_err(Error::custom)?;
            map.next_value_seed(Writer {
                out: &mut *self.out,
                levels,
                part,
            })?;
            fields.add(name, start, self.out.len());
        }
        fields.sort(self.out);
        self.out.push(b'}');
        Ok(())
    }
}

/// The fields of a JSON object, and where each stands in what is written.
struct Fields<'de> {
    start: usize,
    found: Vec<(Cow<'de, str>, usize, usize)>,
    is_sorted: bool,
}

impl<'de> Fields<'de> {
    fn at(start: usize) -> Self {
        Fields {
            start,
            found: Vec::new(),
            is_sorted: true,
        }
    }

    /// Writes the name of the next field. Returns where the field begins.
    fn begin(&self, name: &str, out: &mut Vec<u8>) -> Result<usize, serde_json::Error> {
        if !self.found.is_empty() {
            out.push(b',');
        }
        let start = out.len();
        serde_json::to_writer(&mut *out, name)?;
        out.push(b':');
        Ok(start)
    }

    fn add(&mut self, name: Cow<'de, str>, start: usize, end: usize) {
        self.is_sorted &= self.found.last().is_none_or(|(last, _, _)| *last < name);
        self.found.push((name, start, end));
    }

    /// Brings the fields into the order of their names. Of several with one name, the last counts.
    fn sort(mut self, out: &mut Vec<u8>) {
        if self.is_sorted {
            return;
        }
        self.found.reverse();
        self.found.sort_by(|(a, _, _), (b, _, _)| a.cmp(b));
        self.found.dedup_by(|(later, _, _), (kept, _, _)| later == kept);
        let mut sorted = Vec::with_capacity(out.len() - self.start);
        for (_, start, end) in &self.found {
            if !sorted.is_empty() {
                sorted.push(b',');
            }
            sorted.extend_from_slice(&out[*start..*end]);
        }
        out.truncate(self.start);
        out.append(&mut sorted);
    }
}

/// The name of a field.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;
    use serde_json::{Value, json};

    /// What [`canonical`] must make, by way of a tree.
    fn by_tree(served: &str, levels: usize) -> String {
        fn cut(value: &mut Value, levels: usize) {
            let nests = value.is_object() || value.is_array();
            match levels.checked_sub(1) {
                None if nests => *value = Value::Null,
                None => {}
                Some(levels) => {
                    let fields = value
                        .as_object_mut()
                        .into_iter()
                        .flat_map(|fields| fields.values_mut());
                    fields.for_each(|value| cut(value, levels));
                    let items = value.as_array_mut().into_iter().flatten();
                    items.for_each(|value| cut(value, levels));
                }
            }
        }
        let mut tree: Value = serde_json::from_str(served).expect(served);
        if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        cut(&mut tree, levels);
        text::canonical(tree)
    }

    /// Draws the same texts each time.
    struct Draws(u64);

    impl Draws {
        fn below(&mut self, count: u64) -> u64 {
            // Knuth's MMIX generator.
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % count
        }

        fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
            of[self.below(of.len() as u64) as usize]
        }

        fn many(&mut self, nests: u64, mut one: impl FnMut(&mut Self, u64) -> String) -> String {
            let count = self.below(5);
            let all: Vec<String> = (0..count).map(|_| one(self, nests - 1)).collect();
            all.join(self.one_of(&[",", " , ", ",\n"]))
        }

        fn value(&mut self, nests: u64) -> String {
            let plain = [
                "null",
                "true",
                "false",
                "0",
                "-0",
                "1.0",
                "-7",
                "1e3",
                "0.1",
                "1E-7",
                "9007199254740992.0",
                "9007199254740993",
                "18446744073709551615",
                "-9223372036854775808",
                "1e300",
                r#""""#,
                r#""a""#,
                r#""\u003ca\u003e \/ \n\u0001""#,
                r#""\"\\é😀\ud83d\ude00""#,
                r#""2026-11-26T00:00:00Z""#,
            ];
            match self.below(4) {
                0 if nests > 0 => format!("[{}]", self.many(nests, Self::value)),
                1 | 2 if nests > 0 => format!("{{{}}}", self.many(nests, Self::field)),
                _ => self.one_of(&plain).to_owned(),
            }
        }

        fn field(&mut self, nests: u64) -> String {
            let names = [
                "metadata",
                "managedFields",
                "spec",
                "a",
                "b",
                "aa",
                "A",
                "é",
                r"\u0061",
                r#"\"b"#,
                "",
                "status",
                "kind",
            ];
            let (name, value) = (self.one_of(&names), self.value(nests));
            format!("\"{name}\"{} {value}", self.one_of(&[":", " :"]))
        }
    }

    #[test]
    fn a_text_comes_out_as_by_way_of_a_tree() {
        let mut draws = Draws(13);
        let mut moved = 0;
        for _ in 0..20_000 {
            let served = match draws.below(8) {
                0 => draws.value(6),
                _ => format!("{{{}}}", draws.many(6, Draws::field)),
            };
            let levels = draws.below(8) as usize;
            let found = canonical(served.as_bytes(), &[], levels).expect(&served);
            assert_eq!(found, by_tree(&served, levels), "{served} with {levels} levels");
            moved += usize::from(found.len() > 20);
        }
        assert!(moved > 5_000, "most are no trivial texts: {moved}");
    }

    #[test]
    fn what_a_server_writes_for_managers_is_left_out_of_the_metadata_alone() {
        let served = json!({
            "metadata": {"managedFields": [{"a": 1}], "name": "x"},
            "spec": {"metadata": {"managedFields": 1}}, "managedFields": 2,
        });
        let kept = json!({
            "metadata": {"name": "x"}, "spec": {"metadata": {"managedFields": 1}}, "managedFields": 2,
        });
        let found = canonical(served.to_string().as_bytes(), &[], 100);
        assert_eq!(found.expect("JSON"), text::canonical(kept));
    }

    #[test]
    fn what_lies_too_deep_is_null_however_deep_it_is() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(50_000), close.repeat(50_000));
            let found = canonical(format!("{{\"spec\":{deep},\"a\":7}}").as_bytes(), &[], 3).expect("JSON");
            let kept = format!("{open}{open}null{close}{close}");
            assert_eq!(found, format!("{{\"a\":7,\"spec\":{kept}}}"));
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for wrong in [
            "",
            "{",
            "[1,]",
            "{} {}",
            "nul",
            "{\"a\" 1}",
            "{1: 2}",
            "1e400",
            "\"\u{0}\"",
        ] {
            assert!(canonical(wrong.as_bytes(), &[], 9).is_err(), "{wrong}");
        }
        assert!(canonical(b"\"\xff\"", &[], 9).is_err(), "no UTF-8");
    }

    #[test]
    fn what_is_known_of_an_object_stands_in_place_of_what_it_says() {
        for served in [
            r#"{"kind": 7, "data": {"kind": "x"}, "metadata": {"kind": 1}}"#,
            r#"{"metadata": {"kind": 1}, "data": {"kind": "x"}}"#,
        ] {
            let found = canonical(served.as_bytes(), &[("apiVersion", "v1"), ("kind", "Any")], 9);
            let kept =
                json!({"apiVersion": "v1", "kind": "Any", "data": {"kind": "x"}, "metadata": {"kind": 1}});
            assert_eq!(found.expect("JSON"), text::canonical(kept));
        }
        let empty = canonical(b"{}", &[("kind", "Any")], 9);
        assert_eq!(empty.expect("JSON"), r#"{"kind":"Any"}"#);
        assert_eq!(canonical(b"7", &[("kind", "Any")], 9).expect("JSON"), "7");
    }
}
