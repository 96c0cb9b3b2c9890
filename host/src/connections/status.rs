//! The status of a CloudConnection: is it loaded, is the cloud reached, as whom, how much is asked.

use polity_core::call::{Site, Write};
use polity_core::contract::{Failure, Precondition};
use polity_core::object::Object;
use polity_drivers::Calls;
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use crate::clock::Clock;

/// What is known of a connection that a binding uses.
pub(super) struct Used {
    /// Whether the cloud is reached, and as whom.
    pub(super) reached: Result<Site, Failure>,
    pub(super) calls: Calls,
    /// The class of requests of which a server wants fewer.
    pub(super) throttled: Option<String>,
}

/// The status of a connection. `used` is `None` while no binding uses it.
pub(super) fn status(object: &Object, problem: Option<&str>, used: Option<&Used>, clock: &Clock) -> Value {
    let before = object.at("status.conditions").unwrap_or_default();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let same = |known: &&Value| known["type"] == kind && known["status"] == status;
        let known = before.as_array().into_iter().flatten().find(same);
        let since = known.and_then(|known| known["lastTransitionTime"].as_str());
        let since = since.map_or_else(|| rfc3339(clock.now().unix.0), str::to_owned);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
            "observedGeneration": object.at("metadata.generation").unwrap_or_default(),
        })
    };
    let loaded = match (problem, used) {
        (Some(why), _) => condition("Loaded", "False", "NotLoaded", why),
        (None, None) => condition("Loaded", "Unknown", "NotUsed", "no binding names it"),
        (None, Some(_)) => condition("Loaded", "True", "Loaded", "the driver is loaded"),
    };
    let reachable = match used.map(|used| &used.reached) {
        None => condition("Reachable", "Unknown", "NotUsed", "no binding names it"),
        Some(Ok(_)) => condition("Reachable", "True", "LoggedIn", "the cloud takes the credentials"),
        Some(Err(failure)) => condition("Reachable", "False", "Failed", &failure.message),
    };
    let throttled = match used.map(|used| &used.throttled) {
        None => condition("Throttled", "Unknown", "NotUsed", "no binding names it"),
        Some(None) => condition("Throttled", "False", "AsFastAsAllowed", "no server asks for less"),
        Some(Some(class)) => {
            let message = format!("fewer requests are wanted: {class}");
            condition("Throttled", "True", "ServerAsksForLess", &message)
        }
    };
    let site = used.and_then(|used| used.reached.as_ref().ok());
    let calls = used.map(|Used { calls, .. }| {
        json!({"reads": calls.reads, "changes": calls.changes, "unanswered": calls.unanswered})
    });
    json!({
        "conditions": [loaded, reachable, throttled],
        "calls": calls,
        "principal": site.map(|site| &site.principal),
        "place": site.map(|site| site.place.join("/")),
    })
}

/// A status but for what is counted in it.
pub(super) fn but_for_counts(status: &Value) -> Value {
    let mut status = status.clone();
    status.as_object_mut().map(|fields| fields.remove("calls"));
    status
}

/// The write of a status.
pub(super) fn write(object: &Object, status: Value) -> Write {
    Write::Patch {
        object: object.reference(),
        subresource: Some("status".into()),
        precondition: Some(Precondition {
            uid: object.uid().to_owned(),
            resource_version: None,
        }),
        patch: json!({"status": status}),
    }
}
