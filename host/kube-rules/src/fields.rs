//! Field selectors: `metadata.name=a,spec.nodeName!=b` (apimachinery `fields.ParseSelector`).
//!
//! Nothing is trimmed: a space belongs to the field or value in which it stands. Which fields of a kind can
//! be selected is for the server to decide.

use std::borrow::Cow;
use std::str::FromStr;

use serde_json::Value;

use crate::text;

/// A field selector: all requirements must hold. The empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Requirement>);

/// A requirement: a field has a value, or has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The dotted path of the field: `spec.nodeName`.
    pub field: String,
    /// The value, without its escapes.
    pub value: String,
    /// Whether the field must have the value; otherwise it must not.
    pub is_equal: bool,
}

/// The error for a text that is no field selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid selector: '{selector}'; can't understand '{term}'")]
pub struct NotAFieldSelector {
    selector: String,
    term: String,
}

impl FieldSelector {
    /// The requirements in the order of the text.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same selector with renamed fields. `rename` returns the path of a field in the object, or the
    /// reason why it has none.
    ///
    /// # Errors
    /// The first error that `rename` returns.
    pub fn with_fields<E>(self, rename: impl Fn(&str) -> Result<String, E>) -> Result<Self, E> {
        let renamed = self.0.into_iter().map(|requirement| {
            let field = rename(&requirement.field)?;
            Ok(Requirement { field, ..requirement })
        });
        renamed.collect::<Result<_, E>>().map(Self)
    }

    /// Whether the fields of an object meet every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let is_met = |requirement: &Requirement| {
            let is_same = text_of(object, &requirement.field) == requirement.value;
            is_same == requirement.is_equal
        };
        self.0.iter().all(is_met)
    }

    /// Whether the fields of an object, given as its text, meet every requirement.
    pub fn matches_text(&self, object: &str) -> bool {
        // One reading finds all fields, however many there are.
        let fields = self.0.iter().map(|requirement| requirement.field.as_str());
        self.matches(&text::tree(&text::projection(object, fields.chain(KIND))))
    }
}

impl FromStr for FieldSelector {
    type Err = NotAFieldSelector;

    fn from_str(text: &str) -> Result<Self, NotAFieldSelector> {
        let wrong = |term: &str| NotAFieldSelector {
            selector: text.to_owned(),
            term: term.to_owned(),
        };
        let terms = terms(text).into_iter().filter(|term| !term.is_empty());
        let requirements = terms.map(|term| requirement(term).ok_or_else(|| wrong(term)));
        requirements.collect::<Result<_, _>>().map(Self)
    }
}

/// The text of a requirement, `field=value`. Characters of the value that are selector syntax are escaped.
pub fn term(field: &str, value: &str) -> String {
    let mut term = format!("{field}=");
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            term.push('\\');
        }
        term.push(c);
    }
    term
}

/// Splits a text at commas that are not escaped.
fn terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Parses a term. It is split at its first operator, because fields cannot contain escapes.
fn requirement(term: &str) -> Option<Requirement> {
    let at = term.char_indices().find_map(|(at, _)| {
        let operators = [("!=", false), ("==", true), ("=", true)];
        let found = operators
            .into_iter()
            .find(|(operator, _)| term[at..].starts_with(operator));
        found.map(|(operator, is_equal)| (at, operator.len(), is_equal))
    });
    let (at, length, is_equal) = at?;
    Some(Requirement {
        field: term[..at].to_owned(),
        value: unescaped(&term[at + length..])?,
        is_equal,
    })
}

/// A value without its escapes; `None` if it has an unknown escape, or syntax that is not escaped.
fn unescaped(value: &str) -> Option<String> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?,
            ',' | '=' => return None,
            c => c,
        });
    }
    Some(text)
}

/// The text of a field, which selectors compare.
fn text_of<'o>(object: &'o Value, field: &str) -> Cow<'o, str> {
    match at(object, field) {
        None | Some(Value::Null) => absent(object, field).into(),
        Some(Value::String(text)) => text.into(),
        Some(other) => other.to_string().into(),
    }
}

fn at<'o>(object: &'o Value, path: &str) -> Option<&'o Value> {
    path.split('.').try_fold(object, |value, part| value.get(part))
}

/// The fields that [`absent`] reads beside those of the selector.
const KIND: [&str; 2] = ["apiVersion", "kind"];

/// The text of a missing field. It is empty, but for flags of builtin kinds, which count as `false`
/// (kube-apiserver, the `ToSelectableFields` of Node and Pod).
fn absent(object: &Value, field: &str) -> &'static str {
    let kind = match field {
        "spec.unschedulable" => "Node",
        "spec.hostNetwork" => "Pod",
        _ => return "",
    };
    if object["apiVersion"] == "v1" && object["kind"] == kind {
        "false"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: &str, object: &Value) -> bool {
        selector.parse::<FieldSelector>().expect(selector).matches(object)
    }

    #[test]
    fn every_requirement_must_hold() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"nodeName": "n", "priority": 7, "hostPID": true}});
        for (selector, expected) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a,spec.nodeName=n", true),
            ("metadata.name=a,spec.nodeName=m", false),
            ("spec.nodeName!=m", true),
            ("spec.nodeName!=n", false),
            (",metadata.name=a,", true),
            ("spec.priority=7", true),
            ("spec.hostPID=true", true),
        ] {
            assert_eq!(selects(selector, &pod), expected, "{selector}");
        }
    }

    #[test]
    fn a_field_that_is_not_there_is_empty() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "spec": {"none": null}});
        for (selector, expected) in [
            ("spec.none=", true),
            ("spec.other=", true),
            ("spec.other!=x", true),
            ("spec.other=false", false),
        ] {
            assert_eq!(selects(selector, &node), expected, "{selector}");
        }
    }

    #[test]
    fn a_flag_of_a_builtin_kind_that_is_not_there_is_false() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "spec": {}});
        assert!(selects("spec.unschedulable=false", &node));
        assert!(!selects("spec.unschedulable=true", &node));
        assert!(!selects("spec.unschedulable=", &node));
        let other = json!({"apiVersion": "g/v1", "kind": "Node", "spec": {}});
        assert!(!selects("spec.unschedulable=false", &other));
    }

    #[test]
    fn nothing_is_trimmed() {
        let object = json!({"metadata": {"name": "a"}});
        assert!(!selects("metadata.name= a", &object));
        assert!(!selects("metadata.name =a", &object));
    }

    #[test]
    fn what_is_escaped_belongs_to_the_value() {
        let odd = "a,metadata.namespace=b\\";
        let object = json!({"metadata": {"name": odd}});
        let written = term("metadata.name", odd);
        assert_eq!(written, "metadata.name=a\\,metadata.namespace\\=b\\\\");
        assert!(selects(&written, &object));
    }

    #[test]
    fn what_is_no_field_selector_is_refused() {
        for text in ["a", "a=b=c", "a=b\\c", "a=b\\", "a===b", "a=b,c"] {
            assert!(text.parse::<FieldSelector>().is_err(), "{text}");
        }
        let refused = "a=b,c".parse::<FieldSelector>().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "invalid selector: 'a=b,c'; can't understand 'c'"
        );
    }

    #[test]
    fn fields_may_be_called_otherwise_in_the_object() {
        let selector: FieldSelector = "regarding.name=a".parse().unwrap();
        let renamed = selector
            .clone()
            .with_fields(|_| Ok::<_, ()>("involvedObject.name".to_owned()));
        assert!(
            renamed
                .unwrap()
                .matches(&json!({"involvedObject": {"name": "a"}}))
        );
        assert_eq!(selector.with_fields(|field| Err(field.len())), Err(14));
    }
}
