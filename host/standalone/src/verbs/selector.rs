//! Which objects a list, a watch or a collection delete means: namespace, labels and fields.

use serde_json::{Map, Value};

use crate::{
    http::refusal::Refusal,
    kinds::{Kind, Rules},
};

/// A label selector: every requirement holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    /// Also holds where the label is missing.
    NotIn(String, Vec<String>),
}

impl Labels {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = |part: &str| Refusal::bad_request(format!("unable to parse label selector at {part:?}"));
        let mut requirements = Vec::new();
        for part in split(text).map(str::trim).filter(|part| !part.is_empty()) {
            requirements.push(requirement(part).ok_or_else(|| wrong(part))?);
        }
        Ok(Self(requirements))
    }

    /// The selector that is written as an object (meta/v1 `LabelSelector`); none where there is none, or one that
    /// makes no sense: both select nothing.
    pub(crate) fn of_object(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        for (name, value) in labels.into_iter().flatten() {
            requirements.push(Requirement::In(name.clone(), vec![value.as_str()?.to_owned()]));
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            requirements.push(Requirement::of_object(expression)?);
        }
        Some(Self(requirements))
    }

    /// Whether an object has such labels.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object["metadata"]["labels"].as_object();
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn of_object(expression: &Value) -> Option<Self> {
        let name = expression["key"].as_str()?.to_owned();
        let values = expression["values"].as_array().into_iter().flatten();
        let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
        match expression["operator"].as_str()? {
            "In" => Some(Self::In(name, values)),
            "NotIn" => Some(Self::NotIn(name, values)),
            "Exists" => Some(Self::Exists(name)),
            "DoesNotExist" => Some(Self::Missing(name)),
            _ => None,
        }
    }

    fn holds(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = |name: &String| labels.and_then(|labels| labels.get(name)).and_then(Value::as_str);
        match self {
            Self::Exists(name) => value(name).is_some(),
            Self::Missing(name) => value(name).is_none(),
            Self::In(name, values) => value(name).is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(name, values) => value(name).is_none_or(|v| values.iter().all(|w| w != v)),
        }
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn requirement(part: &str) -> Option<Requirement> {
    if let Some(name) = part.strip_prefix('!') {
        return Some(Requirement::Missing(key(name)?));
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(key(name)?, vec![label_value(value)?]));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(key(name)?, vec![label_value(value)?]));
    }
    let Some(values) = part.strip_suffix(')') else {
        return Some(Requirement::Exists(key(part)?));
    };
    let (head, values) = values.split_once('(')?;
    let values = values
        .split(',')
        .map(label_value)
        .collect::<Option<Vec<String>>>()?;
    let (name, operator) = head.trim().rsplit_once(char::is_whitespace)?;
    match operator {
        "in" => Some(Requirement::In(key(name)?, values)),
        "notin" => Some(Requirement::NotIn(key(name)?, values)),
        _ => None,
    }
}

fn key(text: &str) -> Option<String> {
    let text = text.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    (!text.is_empty() && text.chars().all(good)).then(|| text.to_owned())
}

fn label_value(text: &str) -> Option<String> {
    let text = text.trim();
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        .then(|| text.to_owned())
}

/// A field selector: every requirement holds. A missing field counts as the empty string.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<FieldRequirement>);

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    path: Vec<String>,
    equal: bool,
    value: String,
}

impl Fields {
    /// Parses `metadata.name=a,spec.nodeName!=b`; a field that the kind does not select by is refused.
    pub(crate) fn parse(text: &str, kind: &Kind) -> Result<Self, Refusal> {
        let mut requirements = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, equal, value) = if let Some((name, value)) = part.split_once("!=") {
                (name, false, value)
            } else if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (name, true, value)
            } else {
                return Err(Refusal::bad_request(format!("invalid field selector {part:?}")));
            };
            let name = kind.stored_field(name.trim());
            let allowed = ["metadata.name", "metadata.namespace"].contains(&name.as_str())
                || kind.selectable.contains(&name);
            if !allowed {
                return Err(Refusal::bad_request(format!("field label not supported: {name}")));
            }
            let path = name.split('.').map(str::to_owned).collect();
            requirements.push(FieldRequirement {
                path,
                equal,
                value: value.trim().to_owned(),
            });
        }
        Ok(Self(requirements))
    }

    fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| {
            let found = requirement
                .path
                .iter()
                .try_fold(object, |value, part| value.get(part));
            let same = match found {
                Some(Value::String(text)) => *text == requirement.value,
                None | Some(Value::Null) => requirement.value.is_empty() || requirement.value == "false",
                Some(Value::Bool(flag)) => requirement.value == if *flag { "true" } else { "false" },
                Some(other) => *other == requirement.value,
            };
            same == requirement.equal
        })
    }
}

impl Kind {
    fn stored_field(&self, name: &str) -> String {
        let renamed = (self.rules == Rules::NewEvent)
            .then(|| crate::kinds::core_event_field(name))
            .flatten();
        renamed.unwrap_or_else(|| name.to_owned())
    }
}

/// Which objects of a kind are meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// None: all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
}

impl Selection {
    /// Whether a stored object is meant.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let namespace = || object["metadata"]["namespace"].as_str().unwrap_or_default();
        self.namespace
            .as_deref()
            .is_none_or(|wanted| wanted == namespace())
            && self.labels.matches(object)
            && self.fields.matches(object)
    }

    /// Whether labels or fields narrow it.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.labels.0.is_empty() || !self.fields.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_of_label_requirement_is_understood() {
        let object = json!({ "metadata": { "labels": { "app": "web", "tier": "front" } } });
        for (selector, expected) in [
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app!=web", false),
            ("other!=x", true),
            ("app in (web, api),tier", true),
            ("app notin (web,api)", false),
            ("!other", true),
            ("!app", false),
            ("", true),
        ] {
            assert_eq!(
                Labels::parse(selector).unwrap().matches(&object),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn a_selector_that_is_an_object_selects_the_same() {
        let object = json!({ "metadata": { "labels": { "app": "web" } } });
        let expression = |key, operator, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        for (selector, expected) in [
            (json!({}), Some(true)),
            (json!({ "matchLabels": { "app": "web" } }), Some(true)),
            (
                json!({ "matchLabels": { "app": "web", "tier": "front" } }),
                Some(false),
            ),
            (expression("app", "In", &["api", "web"]), Some(true)),
            (expression("app", "NotIn", &["web"]), Some(false)),
            (expression("tier", "NotIn", &["web"]), Some(true)),
            (expression("app", "Exists", &[]), Some(true)),
            (expression("app", "DoesNotExist", &[]), Some(false)),
            (expression("app", "Is", &["web"]), None),
            (Value::Null, None),
        ] {
            let labels = Labels::of_object(&selector);
            assert_eq!(
                labels.map(|labels| labels.matches(&object)),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn a_selector_that_does_not_parse_is_refused() {
        for selector in ["a in b", "a b", "=x", "a in (b", "a=b c"] {
            assert_eq!(
                Labels::parse(selector).map_err(|r| r.code),
                Err(400),
                "{selector}"
            );
        }
    }
}
