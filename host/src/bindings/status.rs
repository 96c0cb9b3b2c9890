//! The status of a binding: what its conditions, counts and printer columns say.

use polity_core::controller::{Health, LastFault};
use polity_core::key::Key;
use polity_core::time::Unix;
use polity_kube_rules::conditions::since;
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use super::{Known, Ready};
use crate::crds;
use crate::display::{printable, shortened};

/// The most characters of a condition's message.
const MESSAGE: usize = 4_096;
/// The most characters of the reason for which an object is tried again.
const WHY: usize = 512;
/// The most characters of an object's namespace and name.
const OBJECT: usize = 512;

/// A condition without its time.
struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// A condition whose status is True.
fn is(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Condition {
    Condition {
        kind,
        status: "True",
        reason,
        message: message.into(),
    }
}

/// A condition whose status is False.
fn is_not(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Condition {
    Condition {
        status: "False",
        ..is(kind, reason, message)
    }
}

/// The status of a binding.
pub(super) fn status(known: &Known, health: &Health, unix: Unix) -> Value {
    let before = match &known.status {
        Some(status) => status.get("conditions").cloned(),
        None => known.object.at("status.conditions"),
    };
    let before = before.as_ref().and_then(Value::as_array);
    let before = before.map_or(&[][..], Vec::as_slice);
    let conditions = conditions(known, health).into_iter().map(|condition| {
        let Condition {
            kind, status, reason, ..
        } = condition;
        let since = since(before, kind, status);
        let since = since.map_or_else(|| rfc3339(unix.0), str::to_owned);
        let message = printable(&shortened(&condition.message, MESSAGE));
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
    });
    json!({
        "observedGeneration": known.object.generation(),
        "policies": known.running,
        "objects": health.objects,
        "retrying": health.retrying,
        "retries": health.retries.iter().map(retry).collect::<Vec<_>>(),
        "passes": health.passes,
        "acts": health.acts,
        "faults": health.faults,
        "eventsDropped": health.events_dropped,
        "lastFault": health.last_fault.as_ref().map(last_fault),
        "conditions": conditions.collect::<Vec<_>>(),
    })
}

fn retry((key, why): &(Key, String)) -> Value {
    json!({
        "object": printable(&shortened(&key.to_string(), OBJECT)),
        "why": printable(&shortened(why, WHY)),
    })
}

fn last_fault(last: &LastFault) -> Value {
    json!({
        "time": rfc3339(last.at.0),
        "object": printable(&shortened(&last.key.to_string(), OBJECT)),
        "message": printable(&shortened(&last.fault.to_string(), MESSAGE)),
    })
}

/// All conditions of a binding.
fn conditions(known: &Known, health: &Health) -> Vec<Condition> {
    let loaded = match &known.problem {
        None => is("Loaded", "Loaded", "all policies are loaded"),
        Some(problem) => is_not("Loaded", problem.reason, &problem.words),
    };
    let no_fault = "no policy has broken its contract since it was loaded";
    let healthy = match &health.last_fault {
        None => is("Healthy", "NoFault", no_fault),
        Some(LastFault { key, fault, .. }) => is_not("Healthy", "PolicyFault", format!("on {key}: {fault}")),
    };
    let clamped = match &health.clamped {
        None => is_not(
            "WaitClamped",
            "WithinLimits",
            "every wait of the retry policy was within the limits",
        ),
        Some((key, wrong)) => is("WaitClamped", "OutOfLimits", format!("on {key}: {wrong}")),
    };
    let overlap = match &health.overlapped_by {
        None => is_not(
            "Overlap",
            "NoOverlap",
            "no older binding governs the same objects",
        ),
        Some(older) => {
            let message = format!("objects that both bindings match are governed by {older}");
            is("Overlap", "OlderBinding", message)
        }
    };
    let crds = crds::problems(&known.object);
    let crds = crds.map(|problems| is_not("CustomResourceDefinitions", "NotInstalled", problems));
    let all = [
        loaded,
        healthy,
        synced(health),
        ungranted(health),
        clamped,
        kept(health),
        overlap,
    ];
    all.into_iter().chain(crds).collect()
}

fn synced(health: &Health) -> Condition {
    if health.unsynced.is_empty() {
        let message = "every watch of this binding has listed its objects";
        return is("Synced", "Listed", message);
    }
    let all: Vec<&str> = health.unsynced.iter().map(String::as_str).collect();
    let reason = if health.watch_fails {
        "WatchFails"
    } else {
        "NotListed"
    };
    is_not("Synced", reason, format!("waits for {}", all.join("; ")))
}

fn ungranted(health: &Health) -> Condition {
    if health.ungranted.is_empty() {
        return is_not("Ungranted", "EverythingGranted", "every request was granted");
    }
    let all: Vec<&str> = health.ungranted.iter().map(String::as_str).collect();
    is("Ungranted", "Refused", all.join("; "))
}

fn kept(health: &Health) -> Condition {
    if health.not_kept.is_empty() {
        let message = "the API server kept every field that was written";
        return is("Kept", "EverythingKept", message);
    }
    let each = health.not_kept.iter();
    let all: Vec<String> = each.map(|(path, key)| format!("{path} (of {key})")).collect();
    let message = format!(
        "the API server did not keep {}: the CustomResourceDefinition lacks the field, or something sets another value",
        all.join(", ")
    );
    is_not("Kept", "NotKept", message)
}

/// The loaded policies of a binding, as its status shows them.
pub(super) fn running(ready: &Ready) -> Value {
    let memory = |id| {
        let policy = ready.policies.iter().find(|(policy, _)| policy.id() == id);
        policy.map(|(policy, _)| policy.memory())
    };
    let policies = ready.binding.policies.iter();
    let shown = policies.map(|(role, policy)| {
        let shown = json!({
            "name": printable(&policy.manifest.name), "version": printable(&policy.manifest.version),
            "sha256": &*policy.id.0,
            "memory": memory(&policy.id),
        });
        (role.as_str().to_owned(), shown)
    });
    shown.collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_says_whether_its_watches_fail_or_have_only_not_listed_yet() {
        let told = |unsynced: &[&str], watch_fails: bool| {
            let unsynced = unsynced.iter().map(|watch| (*watch).to_owned()).collect();
            let health = Health {
                unsynced,
                watch_fails,
                ..Health::default()
            };
            let Condition {
                status,
                reason,
                message,
                ..
            } = synced(&health);
            (status, reason, message)
        };
        let waits = || "waits for the watch of Machine".to_owned();
        assert_eq!(told(&[], false).1, "Listed");
        assert_eq!(
            told(&["the watch of Machine"], false),
            ("False", "NotListed", waits())
        );
        assert_eq!(
            told(&["the watch of Machine"], true),
            ("False", "WatchFails", waits())
        );
    }
}
