//! Disruption budgets.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Pod;
use crate::{Kind, LabelSelector, Metadata};

/// A PodDisruptionBudget: as much as a drain reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Its namespace is that of the pods it covers.
    pub metadata: Metadata,
    /// Which pods it covers.
    #[serde(default)]
    pub spec: BudgetSpec,
    /// What it allows.
    #[serde(default)]
    pub status: BudgetStatus,
}

impl Kind for Budget {
    const API_VERSION: &'static str = "policy/v1";
    const KIND: &'static str = "PodDisruptionBudget";
    const PROJECTION: &'static [&'static str] = &[
        "metadata.generation",
        "spec.selector",
        "status.observedGeneration",
        "status.expectedPods",
        "status.desiredHealthy",
    ];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Which pods a budget covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetSpec {
    /// Those whose labels it selects; none selects no pod.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "if_readable")]
    pub selector: Option<LabelSelector>,
}

/// What a budget allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// The generation of the budget that this status is about.
    pub observed_generation: i64,
    /// How many pods it covers.
    pub expected_pods: i64,
    /// How many of them must be healthy.
    pub desired_healthy: i64,
}

/// The API server does not store a selector that cannot be read. Should there be one, it selects no pod here: whether a
/// pod may be evicted the API server says in the end, and no drain of anybody else stops at it.
fn if_readable<'de, D: Deserializer<'de>>(stored: D) -> Result<Option<LabelSelector>, D::Error> {
    let stored = Option::<Value>::deserialize(stored)?;
    Ok(stored.and_then(|stored| LabelSelector::read(&stored).ok()))
}

impl Budget {
    /// Whether it covers this pod.
    pub fn covers(&self, pod: &Pod) -> bool {
        let selects = |selector: &LabelSelector| selector.matches(&pod.metadata.labels);
        self.metadata.namespace == pod.metadata.namespace && self.spec.selector.as_ref().is_some_and(selects)
    }

    /// Whether it wants every pod that it covers to stay healthy: then it never allows a disruption.
    pub fn is_hopeless(&self) -> bool {
        let current = self
            .metadata
            .generation
            .is_none_or(|generation| generation == self.status.observed_generation);
        current && self.status.expected_pods > 0 && self.status.desired_healthy >= self.status.expected_pods
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn covers(selector: &Value) -> bool {
        let metadata = json!({"name": "b", "namespace": "shop"});
        let budget: Budget =
            serde_json::from_value(json!({"metadata": metadata, "spec": {"selector": selector}}))
                .expect("a budget is read whatever its selector is");
        let metadata = json!({"name": "p", "namespace": "shop", "labels": {"app": "web"}});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata})).expect("a pod");
        budget.covers(&pod)
    }

    #[test]
    fn a_budget_covers_the_pods_that_it_selects() {
        let other = |operator: &str| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": ["db"]}]});
        for (selector, covered) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (other("In"), false),
            (other("NotIn"), true),
            (Value::Null, false),
            (other("Like"), false),
            (json!("app=web"), false),
        ] {
            assert_eq!(covers(&selector), covered, "{selector}");
        }
    }
}
