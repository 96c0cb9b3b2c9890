//! The status of a CloudConnection: is it loaded, is the cloud reached, as whom.

use polity_core::call::{Site, Write};
use polity_core::contract::{Failure, Precondition};
use polity_core::object::Object;
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use crate::clock::Clock;

/// The status of a connection. `reached` is `None` while no binding uses it.
pub(super) fn status(
    object: &Object,
    problem: Option<&str>,
    reached: Option<&Result<Site, Failure>>,
    clock: &Clock,
) -> Value {
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
    let loaded = match (problem, reached) {
        (Some(why), _) => condition("Loaded", "False", "NotLoaded", why),
        (None, None) => condition("Loaded", "Unknown", "NotUsed", "no binding names it"),
        (None, Some(_)) => condition("Loaded", "True", "Loaded", "the driver is loaded"),
    };
    let reachable = match reached {
        None => condition("Reachable", "Unknown", "NotUsed", "no binding names it"),
        Some(Ok(_)) => condition("Reachable", "True", "LoggedIn", "the cloud takes the credentials"),
        Some(Err(failure)) => condition("Reachable", "False", "Failed", &failure.message),
    };
    let site = reached.and_then(|reached| reached.as_ref().ok());
    json!({
        "conditions": [loaded, reachable],
        "principal": site.map(|site| &site.principal),
        "place": site.map(|site| site.place.join("/")),
    })
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
