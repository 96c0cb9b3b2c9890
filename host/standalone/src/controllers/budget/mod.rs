//! Disruption budgets (policy/v1): how many of the pods they select may go, kept up to date, and asked by evictions.
//!
//! **Flow.** `follow` finds the budgets that a write touches, `status` counts their pods, all in the transaction of that
//! write. An eviction asks the one budget of its pod (`disruption`) and charges it.
//!
//! **Guarantees.** Nobody sees a budget whose status does not fit its pods, whatever the order of requests: the status
//! is a function of what is stored and of the clock. So `observedGeneration` is never behind, and an eviction always
//! decides on the pods as they are. A pod that is named in `disruptedPods` and not deleted within [`DELETION`] counts
//! again at the first request after that, reads included.
//!
//! **How pods are counted.** As by the disruption controller of Kubernetes 1.36, except that there are no workloads
//! here whose replicas it could ask for. For `minAvailable` as a number, the expected pods are those that are selected.
//! For percentages and `maxUnavailable` they are the sum of the replicas wanted by the pods' controllers: a controller
//! that is stored here and has an integer `spec.replicas` wants so many; any other, and a pod without a controller, as
//! many pods as are selected, those that end or have ended included. (The real controller takes pods without a
//! controller for none, and fails on a controller that it cannot find.) Fractions of pods are rounded up. A pod that
//! leaves a budget by its labels is missed there at once; the real controller looks at the new labels only.
//!
//! **What is deliberately absent.** No Events about budgets, no `SyncFailed`, no stale `DisruptionTarget` condition
//! set back.

mod admit;
mod disruption;
mod follow;
mod status;

use jiff::SignedDuration;
use polity_kube_rules::{conditions, labels::LabelSelector};
use serde_json::Value;

pub(crate) use admit::admit;
pub(crate) use disruption::{charge, is_spared, the_one_for};
pub(crate) use follow::{catch_up, follow};
pub(crate) use status::{earliest_end, first};

use crate::store::Stored;

/// Where budgets are stored.
pub(crate) const RESOURCE: &str = "poddisruptionbudgets.policy";

/// How long a pod may take from its eviction to its deletion (disruption controller, `DeletionTimeout`).
const DELETION: SignedDuration = SignedDuration::from_mins(2);

/// Which pods of its namespace a budget covers. One without a selector covers none, one whose selector is empty all.
fn selector(budget: &Stored) -> Option<LabelSelector> {
    LabelSelector::of_object(&budget.at("spec.selector"))
        .ok()
        .flatten()
}

/// Whether a pod has the condition `Ready`: that is what budgets call healthy.
fn is_healthy(pod: &Value) -> bool {
    conditions::is(pod, "Ready", "True")
}
