//! XML as JSON.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use serde_json::{Map, Value};

use crate::MOST_VALUES;

/// The deepest level of elements. The responses of clouds have about a dozen levels.
const DEEPEST: usize = 64;
/// The most attributes of an element.
const ATTRIBUTES: usize = 64;
/// The field that holds the text of an element.
const TEXT: &str = "$text";

/// An element that has begun.
struct Element {
    name: String,
    fields: Map<String, Value>,
    text: String,
}

/// A document as a tree; `None` if it is not XML. A document that uses an entity which it defines itself is refused too,
/// because such entities can make a small document huge.
pub(crate) fn tree(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader::from_str(std::str::from_utf8(bytes).ok()?);
    let mut open = vec![Element {
        name: String::new(),
        fields: Map::new(),
        text: String::new(),
    }];
    let mut count = 0;
    loop {
        if count > MOST_VALUES {
            return None;
        }
        match reader.read_event().ok()? {
            Event::Start(start) => {
                if open.len() > DEEPEST {
                    return None;
                }
                open.push(begin(&start, &mut count)?);
            }
            Event::Empty(start) => {
                let element = begin(&start, &mut count)?;
                end(open.last_mut()?, element);
            }
            Event::End(_) => {
                let element = open.pop()?;
                end(open.last_mut()?, element);
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::GeneralRef(entity) => {
                let character = match entity.resolve_char_ref().ok()? {
                    Some(character) => character.to_string(),
                    None => quick_xml::escape::resolve_predefined_entity(&entity)?.to_owned(),
                };
                open.last_mut()?.text.push_str(&character);
            }
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    // One element is left: the document itself.
    let document = open.pop().filter(|_| open.is_empty())?;
    (!document.fields.is_empty()).then_some(Value::Object(document.fields))
}

/// Adds the element and its attributes to the count of values.
fn begin(start: &BytesStart<'_>, count: &mut usize) -> Option<Element> {
    let mut fields = Map::new();
    *count += 1;
    // The parser compares the name of each attribute with all before it. No response has as many.
    for (nth, attribute) in start.attributes().enumerate() {
        if nth == ATTRIBUTES {
            return None;
        }
        *count += 1;
        let attribute = attribute.ok()?;
        let name = attribute.key.local_name().into_inner();
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).ok()?;
        // Declarations of namespaces are left out.
        if attribute.key.as_namespace_binding().is_some() {
            continue;
        }
        // An element of SOAP may have `type` and `xsi:type`, in any order. The attribute without a prefix wins.
        let (field, is_own) = (format!("@{name}"), attribute.key.prefix().is_none());
        if is_own || !fields.contains_key(&field) {
            fields.insert(field, value.into());
        }
    }
    Some(Element {
        name: start.local_name().into_inner().to_owned(),
        fields,
        text: String::new(),
    })
}

fn end(parent: &mut Element, element: Element) {
    let Element {
        name,
        mut fields,
        text,
    } = element;
    if !text.trim().is_empty() {
        fields.insert(TEXT.to_owned(), text.into());
    }
    let all = parent
        .fields
        .entry(name)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(all) = all {
        all.push(Value::Object(fields));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_are_lists_and_names_have_no_prefixes() {
        let text = r#"<?xml version="1.0"?><!-- one --><s:E xmlns:s="u"><s:B><i a="1" x:type="T"> &lt;one&#33; </i><i/></s:B></s:E>"#;
        assert_eq!(
            tree(text.as_bytes()),
            Some(json!({"E": [{"B": [{"i": [{"@a": "1", "@type": "T", "$text": " <one! "}, {}]}]}]}))
        );
    }

    #[test]
    fn an_attribute_without_a_prefix_counts_before_one_with_it() {
        for text in [
            r#"<r type="Vm" x:type="Ref">1</r>"#,
            r#"<r x:type="Ref" type="Vm">1</r>"#,
        ] {
            assert_eq!(
                tree(text.as_bytes()),
                Some(json!({"r": [{"@type": "Vm", "$text": "1"}]}))
            );
        }
    }

    #[test]
    fn what_is_no_xml_or_grows_when_it_is_read_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000));
        let bomb = r#"<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><l>&b;</l>"#;
        for text in [
            "", "<", "<a>", "<a></b>", "</a>", "<a b=c/>", "plain", &deep, bomb,
        ] {
            assert_eq!(tree(text.as_bytes()), None, "{}", &text[..text.len().min(80)]);
        }
        assert_eq!(tree(b"<a>\xff</a>"), None);
    }
}
