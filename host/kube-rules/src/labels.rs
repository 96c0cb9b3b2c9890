//! Label selectors: as text, `app=web,tier in (a,b),!legacy` (apimachinery `labels.Parse`), and as an object
//! (meta/v1 `LabelSelector`).

use std::collections::BTreeSet;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::names::{label_value_problem, qualified_name_problem};

/// A label selector: all requirements must hold. The empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    holds: Holds,
}

/// The condition on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holds {
    Exists,
    DoesNotExist,
    In(BTreeSet<String>),
    /// The label has none of these values, or is missing.
    NotIn(BTreeSet<String>),
    /// The value is an integer greater than this one.
    GreaterThan(i64),
    /// The value is an integer less than this one.
    LessThan(i64),
}

/// The error for a text or an object that is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotALabelSelector {
    /// The text continues differently than a selector can.
    #[error("unable to parse requirement: found '{found}', expected: {expected}")]
    Unexpected {
        /// The text at the error; empty at the end.
        found: String,
        /// The text that could stand there.
        expected: &'static str,
    },
    /// The key cannot be the key of a label.
    #[error("{key:?} is no key of a label: {why}")]
    Key {
        /// The key.
        key: String,
        /// The error in it.
        why: &'static str,
    },
    /// The value cannot be the value of a label, or not with this operator.
    #[error("{value:?} is no value for the label {key:?}: {why}")]
    Value {
        /// The key of the label.
        key: String,
        /// The value.
        value: String,
        /// The error in the value.
        why: &'static str,
    },
    /// The object has another shape than a `LabelSelector`.
    #[error("no LabelSelector: {0}")]
    Shape(&'static str),
}

impl LabelSelector {
    /// Parses the syntax of `kubectl -l`; `None` if the text is no selector. [`str::parse`] returns the
    /// error.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    /// The selector of a `LabelSelector` object; `None` for null, which selects nothing.
    ///
    /// # Errors
    /// An API server would refuse the object: it has the wrong shape, an unknown operator, too few or too
    /// many values, or keys and values that no label has (apimachinery `LabelSelectorAsSelector`).
    pub fn of_object(selector: &Value) -> Result<Option<Self>, NotALabelSelector> {
        if selector.is_null() {
            return Ok(None);
        }
        let fields = selector
            .as_object()
            .ok_or(NotALabelSelector::Shape("not an object"))?;
        let mut requirements = Vec::new();
        for (key, value) in object_at(fields, "matchLabels")?.into_iter().flatten() {
            let value = value
                .as_str()
                .ok_or(NotALabelSelector::Shape("a label that is no text"))?;
            requirements.push(Requirement::one_of(key, [value], Holds::In)?);
        }
        let expressions = match fields.get("matchExpressions") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(expressions)) => expressions,
            Some(_) => return Err(NotALabelSelector::Shape("matchExpressions are a list")),
        };
        for expression in expressions {
            requirements.push(Requirement::of_object(expression)?);
        }
        Ok(Some(Self(requirements)))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A label that all selected objects have, with its value; `None` if no requirement names one.
    pub fn required(&self) -> Option<(&str, &str)> {
        self.0.iter().find_map(|requirement| match &requirement.holds {
            Holds::In(values) if values.len() == 1 => {
                Some((requirement.key.as_str(), values.first()?.as_str()))
            }
            _ => None,
        })
    }

    /// Whether the labels of an object meet every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_labels(&object["metadata"]["labels"])
    }

    /// Whether these labels meet every requirement. A label whose value is no string counts as missing.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        let value = |key: &str| labels.get(key)?.as_str();
        self.0
            .iter()
            .all(|requirement| requirement.holds.is_met_by(value(&requirement.key)))
    }
}

impl FromStr for LabelSelector {
    type Err = NotALabelSelector;

    fn from_str(text: &str) -> Result<Self, NotALabelSelector> {
        let mut tokens = Tokens(text);
        let mut requirements = Vec::new();
        if tokens.peek() == Token::End {
            return Ok(Self(requirements));
        }
        loop {
            requirements.push(requirement(&mut tokens)?);
            match tokens.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Comma => {}
                other => return Err(other.instead_of("',' or 'end of string'")),
            }
        }
    }
}

fn object_at<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a Map<String, Value>>, NotALabelSelector> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(found)) => Ok(Some(found)),
        Some(_) => Err(NotALabelSelector::Shape("matchLabels are an object")),
    }
}

impl Requirement {
    fn new(key: &str, holds: Holds) -> Result<Self, NotALabelSelector> {
        match qualified_name_problem(key) {
            None => Ok(Self {
                key: key.to_owned(),
                holds,
            }),
            Some(why) => Err(NotALabelSelector::Key {
                key: key.to_owned(),
                why,
            }),
        }
    }

    fn one_of<'a>(
        key: &str,
        values: impl IntoIterator<Item = &'a str>,
        holds: fn(BTreeSet<String>) -> Holds,
    ) -> Result<Self, NotALabelSelector> {
        let mut set = BTreeSet::new();
        for value in values {
            if let Some(why) = label_value_problem(value) {
                return Err(wrong_value(key, value, why));
            }
            set.insert(value.to_owned());
        }
        Self::new(key, holds(set))
    }

    /// Parses one of `matchExpressions`.
    fn of_object(expression: &Value) -> Result<Self, NotALabelSelector> {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let values: Option<Vec<&str>> = values.map(Value::as_str).collect();
        let values = values.ok_or(NotALabelSelector::Shape("a value that is no text"))?;
        match (expression["operator"].as_str(), values.is_empty()) {
            (Some("In"), false) => Self::one_of(key, values, Holds::In),
            (Some("NotIn"), false) => Self::one_of(key, values, Holds::NotIn),
            (Some("Exists"), true) => Self::new(key, Holds::Exists),
            (Some("DoesNotExist"), true) => Self::new(key, Holds::DoesNotExist),
            (Some("In" | "NotIn"), true) => Err(NotALabelSelector::Shape("In and NotIn take values")),
            (Some("Exists" | "DoesNotExist"), false) => {
                Err(NotALabelSelector::Shape("Exists and DoesNotExist take no values"))
            }
            _ => Err(NotALabelSelector::Shape("an operator that is none")),
        }
    }
}

fn wrong_value(key: &str, value: &str, why: &'static str) -> NotALabelSelector {
    NotALabelSelector::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        why,
    }
}

impl Holds {
    fn is_met_by(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Parses `[!]key`, or a key, an operator and its values.
fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, NotALabelSelector> {
    const OPERATORS: &str = "in, notin, =, ==, !=, >, <";
    let is_absent = tokens.peek() == Token::Not;
    if is_absent {
        tokens.next();
    }
    let key = match tokens.next() {
        Token::Word(key) => key,
        other => return Err(other.instead_of("identifier")),
    };
    if is_absent {
        return Requirement::new(key, Holds::DoesNotExist);
    }
    if matches!(tokens.peek(), Token::End | Token::Comma) {
        return Requirement::new(key, Holds::Exists);
    }
    match tokens.next() {
        Token::Word("in") => Requirement::one_of(key, set(tokens)?, Holds::In),
        Token::Word("notin") => Requirement::one_of(key, set(tokens)?, Holds::NotIn),
        Token::Equal => Requirement::one_of(key, [exact(tokens)?], Holds::In),
        Token::NotEqual => Requirement::one_of(key, [exact(tokens)?], Holds::NotIn),
        Token::Greater => Requirement::new(key, Holds::GreaterThan(number(key, exact(tokens)?)?)),
        Token::Less => Requirement::new(key, Holds::LessThan(number(key, exact(tokens)?)?)),
        other => Err(other.instead_of(OPERATORS)),
    }
}

/// Parses the one value after an operator. At the end of the text it is empty.
fn exact<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, NotALabelSelector> {
    if matches!(tokens.peek(), Token::End | Token::Comma) {
        return Ok("");
    }
    match tokens.next() {
        Token::Word(value) => Ok(value),
        other => Err(other.instead_of("identifier")),
    }
}

fn number(key: &str, value: &str) -> Result<i64, NotALabelSelector> {
    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
    value.parse().map_err(|_| wrong_value(key, value, why))
}

/// Parses `(a,b)`. A missing value, as in `(a,,b)` and `()`, is the empty one.
fn set<'a>(tokens: &mut Tokens<'a>) -> Result<Vec<&'a str>, NotALabelSelector> {
    match tokens.next() {
        Token::Open => {}
        other => return Err(other.instead_of("'('")),
    }
    let mut values = Vec::new();
    loop {
        let value = match tokens.peek() {
            Token::Word(value) => {
                tokens.next();
                value
            }
            _ => "",
        };
        values.push(value);
        match tokens.next() {
            Token::Comma => {}
            Token::Close => return Ok(values),
            other => return Err(other.instead_of("',' or ')'")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, or an operator that is a word. `in` can be all three.
    Word(&'a str),
    Open,
    Close,
    Comma,
    Not,
    /// `=` and `==`
    Equal,
    NotEqual,
    Greater,
    Less,
    End,
}

impl Token<'_> {
    fn instead_of(self, expected: &'static str) -> NotALabelSelector {
        let found = match self {
            Self::Word(word) => word,
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::End => "",
        };
        NotALabelSelector::Unexpected {
            found: found.to_owned(),
            expected,
        }
    }
}

/// The rest of the text.
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        Tokens(self.0).next()
    }

    fn next(&mut self) -> Token<'a> {
        const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
        const SYMBOLS: [(&str, Token<'static>); 9] = [
            ("!=", Token::NotEqual),
            ("==", Token::Equal),
            ("=", Token::Equal),
            ("!", Token::Not),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
            (">", Token::Greater),
            ("<", Token::Less),
        ];
        let text = self.0.trim_start_matches(SPACE);
        if text.is_empty() {
            return Token::End;
        }
        for (symbol, token) in SYMBOLS {
            if let Some(rest) = text.strip_prefix(symbol) {
                self.0 = rest;
                return token;
            }
        }
        let ends = |c: char| SPACE.contains(&c) || "=!(),><".contains(c);
        let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
        self.0 = rest;
        Token::Word(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn web() -> Value {
        json!({"metadata": {"labels": {"app": "web", "tier": "front", "cores": "8", "in": "notin", "none": ""}}})
    }

    #[test]
    fn a_label_that_all_selected_objects_have_is_one_with_a_single_value() {
        for (text, required) in [
            ("a=b", Some(("a", "b"))),
            ("x,a in (b)", Some(("a", "b"))),
            ("c!=d,a==b,e=f", Some(("a", "b"))),
            ("a=", Some(("a", ""))),
            ("a in (b,c)", None),
            ("a!=b", None),
            ("a notin (b)", None),
            ("a", None),
            ("!a", None),
            ("a>1", None),
            ("", None),
        ] {
            let selector: LabelSelector = text.parse().expect("a selector");
            assert_eq!(selector.required(), required, "{text}");
        }
    }

    #[test]
    fn every_operator_of_the_syntax_is_understood() {
        for (selector, expected) in [
            ("", true),
            (" \t", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            (" app = web , tier == front ", true),
            ("app=", false),
            ("app=,tier", false),
            ("app!=web", false),
            ("app!=db", true),
            ("other!=x", true),
            ("app in (web, api),tier", true),
            ("app in(web)", true),
            ("app notin (web,api)", false),
            ("other notin (web)", true),
            ("app", true),
            ("legacy", false),
            ("!other", true),
            ("! other", true),
            ("!app", false),
            ("app,!legacy", true),
        ] {
            let parsed: LabelSelector = selector.parse().expect(selector);
            assert_eq!(parsed.matches(&web()), expected, "{selector}");
        }
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        for (selector, expected) in [
            ("cores>7", true),
            ("cores > 10", false),
            ("cores<10", true),
            ("app<10", false),
            ("other<10", false),
        ] {
            let parsed: LabelSelector = selector.parse().expect(selector);
            assert_eq!(parsed.matches(&web()), expected, "{selector}");
        }
        assert!(LabelSelector::parse("cores>many").is_none());
        assert!(LabelSelector::parse("cores>").is_none());
    }

    #[test]
    fn a_value_that_is_left_out_is_the_empty_one() {
        for (selector, expected) in [
            ("none in ()", true),
            ("none in (a,)", true),
            ("none in (,a)", true),
            ("none in (a,,b)", true),
            ("none in (a,b)", false),
            ("none=", true),
            ("none!=", false),
        ] {
            let parsed: LabelSelector = selector.parse().expect(selector);
            assert_eq!(parsed.matches(&web()), expected, "{selector}");
        }
    }

    #[test]
    fn the_words_of_operators_are_labels_too() {
        assert!(LabelSelector::parse("in in (notin)").unwrap().matches(&web()));
        assert!(
            LabelSelector::parse("in=notin,notin notin (in)")
                .unwrap()
                .matches(&web())
        );
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for selector in [
            "a b",
            "a in b",
            "a in (b",
            "a in b)",
            "a in (b c)",
            "a=b c",
            "=x",
            "a b (c)",
            "(a)",
            "a!b",
        ] {
            assert!(LabelSelector::parse(selector).is_none(), "{selector}");
        }
        let refused = "a in b".parse::<LabelSelector>().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "unable to parse requirement: found 'b', expected: '('"
        );
    }

    #[test]
    fn a_comma_is_followed_by_a_requirement() {
        for selector in [",", "a,", ",a", "a,,b"] {
            assert!(LabelSelector::parse(selector).is_none(), "{selector}");
        }
    }

    #[test]
    fn a_requirement_has_one_operator() {
        for selector in ["!a=b", "!!a", "a=b=c", "a===b", "a=!b", "a!==b", "a!"] {
            assert!(LabelSelector::parse(selector).is_none(), "{selector}");
        }
    }

    #[test]
    fn keys_and_values_are_those_that_labels_have() {
        let long = "x".repeat(64);
        for selector in [
            "a/b/c=d",
            "/a",
            "-a",
            "a=-b",
            "a=b_",
            "a=b/c",
            "a in (b,c:d)",
            "ä=b",
            "a\0",
            &long,
            &format!("a={long}"),
        ] {
            assert!(LabelSelector::parse(selector).is_none(), "{selector}");
        }
        assert!(LabelSelector::parse("example.com/a_B.c=D_e.f").is_some());
    }

    #[test]
    fn a_selector_that_is_an_object_selects_the_same() {
        let expression = |key, operator, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "back"}}), false),
            (json!({"matchLabels": null, "matchExpressions": null}), true),
            (expression("app", "In", &["api", "web"]), true),
            (expression("app", "NotIn", &["web"]), false),
            (expression("other", "NotIn", &["web"]), true),
            (expression("app", "Exists", &[]), true),
            (expression("app", "DoesNotExist", &[]), false),
        ] {
            let parsed = LabelSelector::of_object(&selector)
                .expect("a selector")
                .expect("not null");
            assert_eq!(parsed.matches(&web()), expected, "{selector}");
        }
        assert_eq!(LabelSelector::of_object(&Value::Null), Ok(None));
    }

    #[test]
    fn an_object_that_is_no_selector_is_refused() {
        let expression = |key, operator, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for selector in [
            json!("app=web"),
            json!({"matchLabels": ["app"]}),
            json!({"matchLabels": {"app": 7}}),
            json!({"matchLabels": {"a b": "c"}}),
            json!({"matchLabels": {"app": "not ok"}}),
            json!({"matchExpressions": {}}),
            expression("app", "Is", &["web"]),
            expression("app", "Gt", &["7"]),
            expression("app", "In", &[]),
            expression("app", "Exists", &["web"]),
            expression("", "Exists", &[]),
        ] {
            assert!(LabelSelector::of_object(&selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn labels_that_are_none_are_not_there() {
        for odd in [
            json!(null),
            json!({"metadata": {"labels": 7}}),
            json!({"metadata": {"labels": {"a": 7}}}),
        ] {
            assert!(!LabelSelector::parse("a").unwrap().matches(&odd));
            assert!(LabelSelector::parse("!a").unwrap().matches(&odd));
        }
    }
}
