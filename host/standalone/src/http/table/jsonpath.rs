//! The part of JSONPath that printer columns use: `.a.b`, `['a.b']`, `[0]`, `[*]`, `[?(@.type=="Ready")]`.

use std::str::FromStr;

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Each,
    /// The items of a list whose value at the path equals a literal, or does not.
    Filter {
        path: JsonPath,
        equal: bool,
        literal: Value,
    },
}

impl JsonPath {
    /// All values that the path names in `value`.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.steps.iter().fold(vec![value], |found, step| {
            found.into_iter().flat_map(|value| step.apply(value)).collect()
        })
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let Some(items) = value.as_array() else {
                    return Vec::new();
                };
                let index = if *index < 0 {
                    items.len() as i64 + index
                } else {
                    *index
                };
                usize::try_from(index)
                    .ok()
                    .and_then(|index| items.get(index))
                    .into_iter()
                    .collect()
            }
            Self::Each => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Self::Filter { path, equal, literal } => {
                let matches = |item: &&Value| {
                    path.find(item)
                        .into_iter()
                        .any(|found| (found == literal) == *equal)
                };
                value.as_array().into_iter().flatten().filter(matches).collect()
            }
        }
    }
}

impl FromStr for JsonPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let text = text
            .strip_prefix('{')
            .and_then(|t| t.strip_suffix('}'))
            .unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        if rest.is_empty() {
            return Err("is not a JSONPath".to_owned());
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = next(rest)?;
            steps.extend(step);
            rest = after;
        }
        Ok(Self { steps })
    }
}

/// The first step of a path, and the rest.
fn next(text: &str) -> Result<(Option<Step>, &str), String> {
    if text.starts_with("..") {
        return Err("recursive descent (..) is not supported".to_owned());
    }
    if let Some(text) = text.strip_prefix('.') {
        let end = field_end(text);
        let name = text[..end].replace("\\.", ".");
        let step = match name.as_str() {
            "" => None,
            "*" => Some(Step::Each),
            _ => Some(Step::Field(name)),
        };
        return Ok((step, &text[end..]));
    }
    let Some(inside) = text.strip_prefix('[') else {
        return Err(format!("expected . or [ at {text:?}"));
    };
    let end = closing(inside).ok_or("has an unclosed [")?;
    Ok((Some(bracket(inside[..end].trim())?), &inside[end + 1..]))
}

/// A dot that a backslash escapes is part of the name.
fn field_end(text: &str) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            '.' | '[' if !escaped => return index,
            _ => escaped = c == '\\',
        }
    }
    text.len()
}

/// The position of the closing bracket. Quotes and inner brackets are skipped.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0;
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), _) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(index),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Result<Step, String> {
    if text == "*" {
        return Ok(Step::Each);
    }
    if let Some(name) = unquoted(text) {
        return Ok(Step::Field(name.to_owned()));
    }
    if let Ok(index) = text.parse() {
        return Ok(Step::Index(index));
    }
    let filter = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')'));
    let filter = filter.ok_or_else(|| format!("[{text}] is not supported"))?;
    let (path, equal, literal) = if let Some((path, literal)) = filter.split_once("==") {
        (path, true, literal)
    } else if let Some((path, literal)) = filter.split_once("!=") {
        (path, false, literal)
    } else {
        return Err(format!("filter {filter:?} is not supported: only == and != are"));
    };
    let path = path
        .trim()
        .strip_prefix('@')
        .ok_or("a filter begins with @")?
        .parse()?;
    let literal = literal.trim();
    let literal = match unquoted(literal) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(literal).map_err(|_| format!("{literal:?} is no literal"))?,
    };
    Ok(Step::Filter { path, equal, literal })
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"']
        .iter()
        .find_map(|&q| text.strip_prefix(q)?.strip_suffix(q))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str, value: &Value) -> Vec<Value> {
        path.parse::<JsonPath>()
            .unwrap()
            .find(value)
            .into_iter()
            .cloned()
            .collect()
    }

    #[test]
    fn a_filter_picks_a_condition_by_its_type() {
        let object = json!({ "status": { "conditions": [
            { "type": "Synced", "status": "False" }, { "type": "Ready", "status": "True" },
        ] } });
        assert_eq!(
            found(".status.conditions[?(@.type==\"Ready\")].status", &object),
            [json!("True")]
        );
        assert_eq!(
            found(".status.conditions[?(@.type != 'Ready')].status", &object),
            [json!("False")]
        );
    }

    #[test]
    fn fields_indexes_and_wildcards_are_followed() {
        let object = json!({ "a": [{ "b.c": 1 }, { "b.c": 2 }] });
        assert_eq!(found(".a[0]['b.c']", &object), [json!(1)]);
        assert_eq!(found(".a[-1].b\\.c", &object), [json!(2)]);
        assert_eq!(found("$.a[*]['b.c']", &object), [json!(1), json!(2)]);
        assert_eq!(found(".missing.deeper", &object), Vec::<Value>::new());
    }

    #[test]
    fn what_is_not_supported_is_said() {
        assert!("..name".parse::<JsonPath>().unwrap_err().contains("recursive"));
        assert!(
            ".a[?(@.b > 1)]"
                .parse::<JsonPath>()
                .unwrap_err()
                .contains("only ==")
        );
        assert!("a.b".parse::<JsonPath>().is_err());
        assert!(".a[0".parse::<JsonPath>().is_err());
    }
}
