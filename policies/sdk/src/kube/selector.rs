//! Label selectors of Kubernetes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Selects objects by their labels. All of its parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels with the value that each must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelExpression>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelExpression {
    /// The label.
    pub key: String,
    /// The condition on the label.
    pub operator: LabelOperator,
    /// The values; for `In` and `NotIn` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The condition on a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// Reads a stored selector. It checks more than the type can express; the error says what is wrong.
    pub fn read(stored: &Value) -> Result<Self, String> {
        let selector = LabelSelector::deserialize(stored).map_err(|error| error.to_string())?;
        let takes_values = |operator| matches!(operator, LabelOperator::In | LabelOperator::NotIn);
        match selector.match_expressions.iter().find(|expression| {
            expression.key.is_empty() || takes_values(expression.operator) == expression.values.is_empty()
        }) {
            None => Ok(selector),
            Some(wrong) => Err(format!(
                "{:?} of the label {:?} with the values {:?} means nothing",
                wrong.operator, wrong.key, wrong.values
            )),
        }
    }

    /// Whether labels meet every requirement.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        let holds = |expression: &LabelExpression| {
            let value = labels.get(&expression.key);
            let listed = value.is_some_and(|value| expression.values.contains(value));
            match expression.operator {
                LabelOperator::In => listed,
                LabelOperator::NotIn => !listed,
                LabelOperator::Exists => value.is_some(),
                LabelOperator::DoesNotExist => value.is_none(),
            }
        };
        self.match_labels.iter().all(equal) && self.match_expressions.iter().all(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels() -> BTreeMap<String, String> {
        BTreeMap::from([("env".to_owned(), "prod".to_owned())])
    }

    #[test]
    fn every_requirement_must_hold() {
        let of = |key: &str, operator: &str, values: &[&str]| match values {
            [] => json!({"key": key, "operator": operator}),
            values => json!({"key": key, "operator": operator, "values": values}),
        };
        for (expression, holds) in [
            (of("env", "In", &["test", "prod"]), true),
            (of("env", "In", &["test"]), false),
            (of("team", "In", &["a"]), false),
            (of("env", "NotIn", &["prod"]), false),
            (of("team", "NotIn", &["a"]), true),
            (of("env", "Exists", &[]), true),
            (of("team", "Exists", &[]), false),
            (of("env", "DoesNotExist", &[]), false),
            (of("team", "DoesNotExist", &[]), true),
        ] {
            let stored = json!({"matchLabels": {"env": "prod"}, "matchExpressions": [expression]});
            let selector = LabelSelector::read(&stored).unwrap();
            assert_eq!(selector.matches(&labels()), holds, "{stored}");
        }
        let other = LabelSelector::read(&json!({"matchLabels": {"env": "test"}})).unwrap();
        assert!(!other.matches(&labels()));
        assert!(LabelSelector::default().matches(&labels()));
    }

    #[test]
    fn what_means_nothing_is_said() {
        for (stored, wrong) in [
            (json!({"matchLables": {}}), "unknown field"),
            (json!({"matchLabels": {"env": 1}}), "expected a string"),
            (
                json!({"matchExpressions": [{"key": "", "operator": "Exists"}]}),
                "means nothing",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "means nothing",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
                "means nothing",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
                "unknown variant",
            ),
        ] {
            let said = LabelSelector::read(&stored).unwrap_err();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
