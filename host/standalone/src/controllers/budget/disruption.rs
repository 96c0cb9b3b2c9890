//! Whether a pod may be evicted, and how its budget is charged (kube-apiserver, `EvictionREST` of
//! `pkg/registry/core/pod/storage/eviction.go`).

use polity_kube_rules::time::meta_time;
use serde_json::{Value, json};

use super::{RESOURCE, is_healthy, selector, status};
use crate::{
    http::refusal::{Refusal, Subject},
    store::{Key, Object, Write},
};

/// The most pods that a budget may list as evicted and not yet deleted (kube-apiserver
/// `MaxDisruptedPodSize`).
const DISRUPTED: usize = 2_000;
/// When to retry an eviction whose budget is not computed yet, in seconds (kube-apiserver).
const SOON: u32 = 10;

/// The budget that covers a pod, if any; 500 if there are several: both cannot be charged.
pub(crate) fn the_one_for(
    write: &Write<'_>,
    pod: &Key,
    object: &Object,
) -> Result<Option<(Key, Object)>, Refusal> {
    let mut budgets = write.all_of(&RESOURCE.into(), Some(&pod.namespace));
    let labels = object.at("metadata.labels");
    budgets.retain(|(_, budget)| selector(budget).is_some_and(|covered| covered.matches_labels(&labels)));
    if budgets.len() > 1 {
        return Err(Refusal::several_budgets());
    }
    Ok(budgets.pop())
}

/// Whether a pod may go without its budget's consent: it is not healthy, and the budget either always allows
/// that for such pods or has enough healthy pods without them.
pub(crate) fn is_spared(budget: &Value, pod: &Value) -> bool {
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    let desired = count("desiredHealthy");
    !is_healthy(pod) && (always || (desired > 0 && count("currentHealthy") >= desired))
}

/// The budget after one more disruption, by a pod of this name; 429 if it allows none.
pub(crate) fn charge(name: &str, budget: &Value, pod: &str, now: jiff::Timestamp) -> Result<Value, Refusal> {
    let (metadata, status) = (&budget["metadata"], &budget["status"]);
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    if count("observedGeneration") < metadata["generation"].as_i64().unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(Refusal::disruption(&why, Some(SOON)));
    }
    let subject = Subject {
        group: "policy",
        kind: "poddisruptionbudget",
        name,
    };
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        return Err(Refusal::forbidden(subject, "pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"]
        .as_object()
        .map_or(0, serde_json::Map::len)
        > DISRUPTED
    {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Refusal::forbidden(subject, why));
    }
    if allowed == 0 {
        let (desired, healthy) = (count("desiredHealthy"), count("currentHealthy"));
        let why = if healthy <= desired {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        } else {
            format!("The disruption budget {name} does not allow evicting pods currently")
        };
        return Err(Refusal::disruption(&why, None));
    }
    let mut charged = budget.clone();
    let status = &mut charged["status"];
    status["disruptionsAllowed"] = json!(allowed - 1);
    if !status["disruptedPods"].is_object() {
        status["disruptedPods"] = json!({});
    }
    status["disruptedPods"][pod] = json!(meta_time(now));
    if allowed == 1 {
        status::set_condition(status, now);
    }
    Ok(charged)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn budget(generation: i64, allowed: i64, healthy: i64, desired: i64) -> Value {
        json!({
            "metadata": { "generation": generation },
            "status": {
                "observedGeneration": 2, "disruptionsAllowed": allowed,
                "currentHealthy": healthy, "desiredHealthy": desired,
            },
        })
    }

    #[test]
    fn a_budget_that_refuses_says_why() {
        for (budget, code, cause, retry) in [
            (
                budget(3, 5, 5, 1),
                429,
                json!("The disruption budget b is still being processed by the server."),
                json!(10),
            ),
            (
                budget(2, 0, 1, 2),
                429,
                json!("The disruption budget b needs 2 healthy pods and has 1 currently"),
                Value::Null,
            ),
            (
                budget(2, 0, 3, 2),
                429,
                json!("The disruption budget b does not allow evicting pods currently"),
                Value::Null,
            ),
            (budget(2, -1, 3, 2), 403, Value::Null, Value::Null),
        ] {
            let refused = charge("b", &budget, "p", Timestamp::UNIX_EPOCH)
                .unwrap_err()
                .status();
            let details = &refused["details"];
            assert_eq!(refused["code"], code);
            assert_eq!(details["causes"][0]["message"], cause);
            assert_eq!(details["retryAfterSeconds"], retry);
        }
        let mut crowded = budget(2, 1, 3, 2);
        let pods = (0..=DISRUPTED).map(|n| (n.to_string(), json!("1970-01-01T00:00:00Z")));
        crowded["status"]["disruptedPods"] = pods.collect();
        let refused = charge("b", &crowded, "p", Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(refused.code, 403);
    }

    #[test]
    fn the_last_disruption_that_is_allowed_is_said_in_the_condition() {
        let more = charge("b", &budget(2, 2, 4, 2), "p", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(more["status"]["disruptionsAllowed"], 1);
        assert_eq!(more["status"].get("conditions"), None);
        let last = charge("b", &more, "q", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(last["status"]["disruptionsAllowed"], 0);
        assert_eq!(last["status"]["conditions"][0]["reason"], "InsufficientPods");
        let named = json!({ "p": "1970-01-01T00:00:00Z", "q": "1970-01-01T00:00:00Z" });
        assert_eq!(last["status"]["disruptedPods"], named);
    }

    #[test]
    fn a_pod_that_is_not_ready_goes_where_the_budget_lacks_nothing() {
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        let unready = json!({ "status": { "phase": "Running" } });
        let always = |mut budget: Value| {
            budget["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
            budget
        };
        for (budget, pod, spared) in [
            (budget(2, 0, 2, 2), &unready, true),
            (budget(2, 0, 1, 2), &unready, false),
            (budget(2, 0, 0, 0), &unready, false),
            (always(budget(2, 0, 0, 2)), &unready, true),
            (always(budget(2, 0, 2, 2)), &ready, false),
            (budget(2, 0, 2, 2), &ready, false),
        ] {
            assert_eq!(is_spared(&budget, pod), spared, "{budget} {pod}");
        }
    }
}
