//! Finds the budgets that a write affects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use polity_kube_rules::labels::LabelSelector;
use serde_json::Value;

use super::{RESOURCE, is_healthy, selector, status};
use crate::store::{Change, Key, Object, Stored, Write};

const PODS: &str = "pods";

/// Updates the budgets that changed by time alone. This runs before a write, so that the write decides on the
/// present state.
pub(crate) fn catch_up(write: &mut Write<'_>) {
    for key in write.late_budgets() {
        renew(write, &key);
    }
}

/// Updates all budgets that the changes so far affect.
pub(crate) fn follow(write: &mut Write<'_>) {
    for key in touched(write) {
        renew(write, &key);
    }
}

fn touched(write: &Write<'_>) -> BTreeSet<Key> {
    let mut budgets = BTreeSet::new();
    // The pod before and after the change: it can leave one budget for another.
    let mut pods: BTreeMap<Arc<str>, Vec<Object>> = BTreeMap::new();
    for change in write.changes() {
        match &*change.key.resource {
            RESOURCE => {
                budgets.insert(change.key.clone());
            }
            PODS if matters(change) => {
                let seen = change.previous.iter().chain([&change.object]).cloned();
                pods.entry(change.key.namespace.clone()).or_default().extend(seen);
            }
            _ if is_scaled(change) => {
                for (key, pod) in write.owned_by(change.object.uid()) {
                    pods.entry(key.namespace).or_default().push(pod);
                }
            }
            _ => {}
        }
    }
    for (namespace, pods) in pods {
        for (key, budget) in write.all_of(&RESOURCE.into(), Some(&namespace)) {
            if selector(&budget).is_some_and(|covered| pods.iter().any(|pod| covers(&covered, pod))) {
                budgets.insert(key);
            }
        }
    }
    budgets
}

/// Whether a pod changed in something that budgets count.
fn matters(change: &Change) -> bool {
    let seen = |pod: &Object| {
        (
            pod.at("metadata.labels"),
            pod.at("metadata.ownerReferences"),
            pod.is_deleting(),
            is_healthy(&pod.tree()),
        )
    };
    change.deleted
        || change
            .previous
            .as_ref()
            .is_none_or(|previous| seen(previous) != seen(&change.object))
}

fn is_scaled(change: &Change) -> bool {
    let now = replicas(&change.object).filter(|_| !change.deleted);
    let before = change.previous.as_deref().and_then(replicas);
    now != before
}

fn replicas(controller: &Stored) -> Option<i64> {
    controller.at("spec.replicas").as_i64()
}

fn covers(selector: &LabelSelector, pod: &Object) -> bool {
    selector.matches_labels(&pod.at("metadata.labels"))
}

fn renew(write: &mut Write<'_>, key: &Key) {
    let Some(budget) = write.get(key) else {
        return;
    };
    let mut pods: Vec<Value> = Vec::new();
    if let Some(covered) = selector(&budget) {
        let here = write.all_of(&PODS.into(), Some(&key.namespace));
        let here = here.into_iter().filter(|(_, pod)| covers(&covered, pod));
        pods.extend(here.map(|(_, pod)| pod.tree()));
    }
    let mut budget = budget.tree();
    let status = status::of(&budget, &pods, scale(write, &pods), write.time());
    if status != budget["status"] {
        budget["status"] = status;
        write.put(key, budget);
    }
}

/// How many pods the controllers of these pods want.
fn scale(write: &Write<'_>, pods: &[Value]) -> i64 {
    let mut controllers: BTreeMap<String, i64> = BTreeMap::new();
    let mut counted = 0;
    for pod in pods {
        let controller = controller(pod);
        let wanted = controller.and_then(|uid| replicas(&write.with_uid(uid)?.1));
        match (controller, wanted) {
            (Some(uid), Some(wanted)) => {
                controllers.insert(uid.to_owned(), wanted.max(0));
            }
            _ => counted += 1,
        }
    }
    controllers
        .values()
        .fold(counted, |sum: i64, wanted| sum.saturating_add(*wanted))
}

fn controller(pod: &Value) -> Option<&str> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}
