//! Disruption budgets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Pod;
use crate::{Kind, Metadata};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
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

/// Selects by labels. What is empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels that must have these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    pub match_expressions: Vec<Requirement>,
}

/// A requirement of a label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

impl Selector {
    /// Whether it selects something with these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        let meets = |requirement: &Requirement| {
            let value = labels.get(&requirement.key);
            match requirement.operator.as_str() {
                "In" => value.is_some_and(|value| requirement.values.contains(value)),
                "NotIn" => value.is_none_or(|value| !requirement.values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        };
        self.match_labels.iter().all(equal) && self.match_expressions.iter().all(meets)
    }
}

impl Budget {
    /// Whether it covers this pod.
    pub fn covers(&self, pod: &Pod) -> bool {
        let selects = |selector: &Selector| selector.matches(&pod.metadata.labels);
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
