//! Label selectors in Kubernetes syntax: `app=web,tier in (a,b),!legacy`.

use serde_json::Value;

/// A conjunction of requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Parses the syntax of `kubectl -l`. None if it is not that.
    pub fn parse(text: &str) -> Option<Self> {
        split_terms(text)
            .into_iter()
            .map(|term| parse_term(term.trim()))
            .collect::<Option<_>>()
            .map(Selector)
    }

    /// Whether an object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|x| x != v)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        })
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut depth, mut start) = (Vec::new(), 0u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.into_iter().filter(|t| !t.trim().is_empty()).collect()
}

fn parse_term(term: &str) -> Option<Requirement> {
    let key =
        |text: &str| Some(text.trim().to_owned()).filter(|k| !k.is_empty() && !k.contains([' ', '(', ')']));
    if let Some((k, v)) = term.split_once("!=") {
        return Some(Requirement::NotIn(key(k)?, vec![v.trim().to_owned()]));
    }
    if let Some((k, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Some(Requirement::In(key(k)?, vec![v.trim().to_owned()]));
    }
    if let Some(set) = term.strip_suffix(')') {
        let (head, values) = set.split_once('(')?;
        let values = values.split(',').map(|v| v.trim().to_owned()).collect();
        let head = head.trim();
        return match head.strip_suffix(" notin") {
            Some(k) => Some(Requirement::NotIn(key(k)?, values)),
            None => Some(Requirement::In(key(head.strip_suffix(" in")?)?, values)),
        };
    }
    match term.strip_prefix('!') {
        Some(k) => Some(Requirement::Absent(key(k)?)),
        None => Some(Requirement::Exists(key(term)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_operator_of_the_syntax_is_understood() {
        let pod = json!({"metadata": {"labels": {"app": "web", "tier": "a"}}});
        for (text, expected) in [
            ("app=web", true),
            ("app==web,tier in (a, b)", true),
            ("tier notin (a,b)", false),
            ("app!=db", true),
            ("app,!legacy", true),
            ("legacy", false),
            ("", true),
        ] {
            assert_eq!(
                Selector::parse(text).map(|s| s.matches(&pod)),
                Some(expected),
                "{text}"
            );
        }
        assert_eq!(Selector::parse("a b (c)"), None);
    }
}
