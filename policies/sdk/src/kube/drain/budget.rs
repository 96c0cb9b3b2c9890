//! Disruption budgets.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Pod;
use crate::{Kind, LabelSelector, Metadata};

/// A PodDisruptionBudget, with the fields that a drain reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The metadata. The budget covers pods in its own namespace.
    pub metadata: Metadata,
    /// The pods that it covers.
    #[serde(default)]
    pub spec: BudgetSpec,
    /// The disruptions that it allows.
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

/// The pods that a budget covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetSpec {
    /// The selector of its pods; without one it covers no pod.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "if_readable")]
    pub selector: Option<LabelSelector>,
}

/// The disruptions that a budget allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// The generation of the budget that this status is about.
    pub observed_generation: i64,
    /// The number of pods that it covers.
    pub expected_pods: i64,
    /// The number of pods that must be healthy.
    pub desired_healthy: i64,
}

/// Reads a selector. A selector that cannot be read selects no pod here. API servers do not store such a selector.
/// If there is one nevertheless, it must not stop a drain: the API server decides about evictions in the end.
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

    /// Whether all its pods must stay healthy, so that it never allows a disruption.
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
