//! Reads JSON from an API server and limits how deep it nests.
//!
//! A real API server accepts objects that nest ten thousand values deep. Walking such an object would
//! overflow the stack. A parser that refuses it would refuse the whole list or watch, and hide every other
//! object of that kind. So a value that lies too deep is read as null. No policy reads that deep.

use polity_kube_rules::served;
use serde_json::Value;

/// How many levels of an object are read. Policies parse at most 128 levels (the limit of serde_json), which
/// include the answer or patch around the object.
pub(crate) const DEPTH: usize = 100;

/// The tree of an answer.
pub(crate) fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_str(&served::canonical(text, &[], DEPTH)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::kind;
    use crate::read::Page;
    use polity_core::object::Object;
    use serde_json::json;

    #[test]
    fn what_is_read_is_what_is_written() {
        let value = json!({
            "null": null, "yes": true, "less": -5, "most": u64::MAX, "half": 0.5, "text": "a\u{1b}\"é", "": [[], {}, [1]],
        });
        assert_eq!(parse(value.to_string().as_bytes()).expect("JSON"), value);
        for wrong in ["", "{", "[1,]", "{} {}", "nul", "{\"a\" 1}", "\"\u{0}\""] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_lies_too_deep_is_null_alone_and_in_a_list_and_everything_beside_it_is_read() {
        fn depth(value: &Value) -> usize {
            match value {
                Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
                Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
                _ => 0,
            }
        }
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(50_000), close.repeat(50_000));
            let deep = format!("{{\"apiVersion\":\"g/v1\",\"kind\":\"Widget\",\"spec\":{deep}}}");
            let alone = parse(deep.as_bytes()).expect("JSON");
            assert_eq!(depth(&alone), DEPTH);
            let list = format!("{{\"items\":[{deep},{{\"spec\":7}}]}}");
            let kind = kind("g/v1", "Widget");
            let trees: Page<Value> = Page::read(list.as_bytes(), &kind, "it").expect("a list");
            let objects: Page<Object> = Page::read(list.as_bytes(), &kind, "it").expect("a list");
            assert_eq!(
                (&trees.objects[0], objects.objects[0].tree()),
                (&alone, alone.clone())
            );
            assert_eq!(
                (
                    &trees.objects[1]["spec"],
                    objects.objects[1].tree()["spec"].as_u64()
                ),
                (&json!(7), Some(7))
            );
        }
    }
}
