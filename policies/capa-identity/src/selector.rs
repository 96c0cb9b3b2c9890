//! Label selectors, as Kubernetes has them.

use std::collections::BTreeMap;

use polity_sdk::prelude::*;
use serde_json::Value;

/// Chooses objects by their labels: everything in it must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels and their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Expression>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expression {
    /// The label.
    pub key: String,
    /// What must hold of it.
    pub operator: Operator,
    /// Values, for `In` and `NotIn` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// What must hold of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// Reads a selector as it is stored, or says what is wrong with it.
    pub(crate) fn read(stored: &Value) -> Result<Self, String> {
        let selector = LabelSelector::deserialize(stored).map_err(|error| error.to_string())?;
        let takes_values = |operator| matches!(operator, Operator::In | Operator::NotIn);
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
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        let holds = |expression: &Expression| {
            let value = labels.get(&expression.key);
            let listed = value.is_some_and(|value| expression.values.contains(value));
            match expression.operator {
                Operator::In => listed,
                Operator::NotIn => !listed,
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        };
        self.match_labels.iter().all(equal) && self.match_expressions.iter().all(holds)
    }
}
