//! Computes the status of a budget.

use jiff::Timestamp;
use polity_kube_rules::{conditions, deletion::is_deleting, time::meta_time};
use serde_json::{Map, Value, json};

use super::{DELETION, is_healthy};

/// The status of a new budget.
pub(crate) fn first() -> Value {
    json!({ "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0 })
}

/// The status of `budget`. `pods` are the pods that it covers; their controllers want `scale` pods.
pub(super) fn of(budget: &Value, pods: &[Value], scale: i64, now: Timestamp) -> Value {
    let spec = &budget["spec"];
    let covered = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let (expected, desired) = if let Some(most) = Amount::read(&spec["maxUnavailable"]) {
        (scale, (scale - most.of(scale)).max(0))
    } else {
        match Amount::read(&spec["minAvailable"]) {
            Some(Amount::Pods(pods)) => (covered, pods),
            Some(percent) => (scale, percent.of(scale)),
            None => (0, 0),
        }
    };
    let disrupted = still_disrupted(budget, pods, now);
    let counts =
        |pod: &&Value| !is_deleting(pod) && is_healthy(pod) && !is_leaving(&disrupted, name(pod), now);
    let healthy = i64::try_from(pods.iter().filter(counts).count()).unwrap_or(i64::MAX);
    // No disruption is allowed if no pods are expected: the first pods may exist before they are counted.
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    let mut status = json!({
        "observedGeneration": budget["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": budget["status"]["conditions"],
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    set_condition(&mut status, now);
    status
}

/// Sets the condition `DisruptionAllowed`.
pub(super) fn set_condition(status: &mut Value, now: Timestamp) {
    let (said, reason) = if status["disruptionsAllowed"].as_i64() > Some(0) {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let condition = json!({
        "type": "DisruptionAllowed",
        "status": said,
        "observedGeneration": status["observedGeneration"],
        "lastTransitionTime": meta_time(now),
        "reason": reason,
        "message": "",
    });
    conditions::set(status, condition);
}

/// When the first of a budget's `disruptedPods` counts again; `None` if there are none.
pub(crate) fn earliest_end(budget: &Value) -> Option<Timestamp> {
    let disrupted = budget["status"]["disruptedPods"].as_object()?;
    disrupted.values().filter_map(end).min()
}

/// The `disruptedPods` that still exist, are not being deleted, and whose time is not over.
fn still_disrupted(budget: &Value, pods: &[Value], now: Timestamp) -> Map<String, Value> {
    let known = &budget["status"]["disruptedPods"];
    let staying = pods.iter().filter(|pod| !is_deleting(pod));
    staying
        .filter_map(|pod| Some((name(pod).to_owned(), known.get(name(pod))?)))
        .filter(|(_, since)| end(since).is_some_and(|end| end >= now))
        .map(|(name, since)| (name, since.clone()))
        .collect()
}

/// Whether a pod was evicted a short while ago.
fn is_leaving(disrupted: &Map<String, Value>, pod: &str, now: Timestamp) -> bool {
    disrupted.get(pod).and_then(end).is_some_and(|end| end > now)
}

fn end(since: &Value) -> Option<Timestamp> {
    let since: Timestamp = since.as_str()?.parse().ok()?;
    since.checked_add(DELETION).ok()
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

/// `minAvailable` or `maxUnavailable`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Amount {
    Pods(i64),
    Percent(i64),
}

impl Amount {
    /// `None` if the field is absent, or neither a number nor a percentage.
    pub(super) fn read(field: &Value) -> Option<Self> {
        match field {
            Value::String(text) => {
                let digits = text.strip_suffix('%')?;
                let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                // A number with too many digits is more than any percentage.
                all.then(|| Self::Percent(digits.parse().unwrap_or(i64::MAX)))
            }
            other => other.as_i64().map(Self::Pods),
        }
    }

    /// This amount of `total`, rounded up.
    fn of(self, total: i64) -> i64 {
        match self {
            Self::Pods(pods) => pods,
            Self::Percent(percent) => {
                let hundredths = percent.saturating_mul(total);
                hundredths / 100 + i64::from(hundredths % 100 > 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: bool, deleting: bool) -> Value {
        let mut pod = json!({ "metadata": { "name": name }, "status": { "conditions": [
            { "type": "Ready", "status": if ready { "True" } else { "False" } },
        ] } });
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        }
        pod
    }

    fn budget(spec: Value) -> Value {
        json!({ "metadata": { "generation": 3 }, "spec": spec, "status": first() })
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// expected, desired, healthy, allowed
    fn counts(status: &Value) -> [i64; 4] {
        [
            "expectedPods",
            "desiredHealthy",
            "currentHealthy",
            "disruptionsAllowed",
        ]
        .map(|field| status[field].as_i64().unwrap())
    }

    #[test]
    fn what_is_allowed_follows_from_the_spec_and_the_pods() {
        let healthy: Vec<Value> = ["a", "b", "c", "d"].map(|name| pod(name, true, false)).into();
        let mut mixed = healthy.clone();
        mixed[0] = pod("a", false, false);
        mixed[1] = pod("b", true, true);
        for (spec, pods, scale, expected) in [
            (json!({ "minAvailable": 3 }), &healthy, 9, [4, 3, 4, 1]),
            (json!({ "minAvailable": 5 }), &healthy, 9, [4, 5, 4, 0]),
            (json!({ "minAvailable": "50%" }), &healthy, 5, [5, 3, 4, 1]),
            (json!({ "minAvailable": "100%" }), &healthy, 4, [4, 4, 4, 0]),
            (json!({ "minAvailable": "0%" }), &healthy, 4, [4, 0, 4, 4]),
            (json!({ "maxUnavailable": 1 }), &healthy, 4, [4, 3, 4, 1]),
            (json!({ "maxUnavailable": 9 }), &healthy, 4, [4, 0, 4, 4]),
            (json!({ "maxUnavailable": "30%" }), &healthy, 4, [4, 2, 4, 2]),
            (json!({ "maxUnavailable": 1 }), &mixed, 4, [4, 3, 2, 0]),
            (json!({ "minAvailable": 1 }), &mixed, 4, [4, 1, 2, 1]),
            (json!({}), &healthy, 4, [0, 0, 4, 0]),
            (json!({ "minAvailable": 0 }), &Vec::new(), 0, [0, 0, 0, 0]),
        ] {
            let status = of(&budget(spec.clone()), pods, scale, at(0));
            assert_eq!(counts(&status), expected, "{spec}");
            assert_eq!(status["observedGeneration"], 3);
            let allowed = if expected[3] > 0 { "True" } else { "False" };
            assert_eq!(status["conditions"][0]["status"], allowed, "{spec}");
        }
    }

    #[test]
    fn an_evicted_pod_counts_again_after_two_minutes() {
        let pods: Vec<Value> = ["a", "b"].map(|name| pod(name, true, false)).into();
        let mut budget = budget(json!({ "minAvailable": 1 }));
        budget["status"]["disruptedPods"] =
            json!({ "a": "1970-01-01T00:00:10Z", "gone": "1970-01-01T00:00:10Z" });
        assert_eq!(earliest_end(&budget), Some(at(130)));
        for (now, named, healthy) in [(129, true, 1), (130, true, 2), (131, false, 2)] {
            let status = of(&budget, &pods, 2, at(now));
            let kept = json!({ "a": "1970-01-01T00:00:10Z" });
            assert_eq!(status.get("disruptedPods"), named.then_some(&kept), "{now}");
            assert_eq!(status["currentHealthy"], healthy, "{now}");
        }
        let ending = [pod("a", true, true)];
        assert_eq!(of(&budget, &ending, 1, at(20)).get("disruptedPods"), None);
    }

    #[test]
    fn a_condition_changes_its_time_only_with_its_status() {
        let pods = [pod("a", true, false)];
        let mut budget = budget(json!({ "minAvailable": 0 }));
        budget["status"] = of(&budget, &pods, 1, at(1));
        budget["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "type": "Other" }));
        let later = of(&budget, &pods, 1, at(2));
        assert_eq!(later, budget["status"], "nothing has changed");
        budget["spec"]["minAvailable"] = json!(1);
        let refused = of(&budget, &pods, 1, at(3));
        assert_eq!(
            refused["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:03Z"
        );
        assert_eq!(refused["conditions"][1]["type"], "Other");
    }

    #[test]
    fn a_huge_percentage_is_read_as_one() {
        assert_eq!(Amount::read(&json!("7%")), Some(Amount::Percent(7)));
        assert_eq!(
            Amount::read(&json!("99999999999999999999%")),
            Some(Amount::Percent(i64::MAX))
        );
        for wrong in [json!("7"), json!("%"), json!("-1%"), json!("x%"), json!(null)] {
            assert_eq!(Amount::read(&wrong), None, "{wrong}");
        }
    }
}
