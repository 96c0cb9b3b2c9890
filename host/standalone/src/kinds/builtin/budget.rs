//! Disruption budgets (policy/v1). The rules that a schema cannot express are in
//! [`crate::controllers::budget`].

use serde_json::json;

use super::{Name, text, texts};
use crate::kinds::{Kind, Rules};

pub(super) fn budget() -> Kind {
    let amount = json!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
    });
    let requirement = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": text(),
            "operator": text(),
            "values": { "type": "array", "nullable": true, "items": text() },
        },
    });
    let selector = json!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchLabels": texts(),
            "matchExpressions": { "type": "array", "nullable": true, "items": requirement },
        },
    });
    let spec = json!({
        "type": "object",
        "properties": {
            "minAvailable": amount,
            "maxUnavailable": amount,
            "selector": selector,
            "unhealthyPodEvictionPolicy": { "type": "string", "enum": ["AlwaysAllow", "IfHealthyBudget"] },
        },
    });
    let count = json!({ "type": "integer", "minimum": 0 });
    let time = json!({ "type": "string", "format": "date-time" });
    let condition = json!({
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": text(),
            "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
            "observedGeneration": count,
            "lastTransitionTime": time,
            "reason": text(),
            "message": text(),
        },
    });
    let status = json!({
        "type": "object",
        "properties": {
            "observedGeneration": count,
            "disruptedPods": { "type": "object", "nullable": true, "additionalProperties": time },
            "disruptionsAllowed": count,
            "currentHealthy": count,
            "desiredHealthy": count,
            "expectedPods": count,
            "conditions": { "type": "array", "nullable": true, "items": condition },
        },
    });
    let mut kind = Name("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
        .kind(json!({ "spec": spec, "status": status }))
        .with_status()
        .short("pdb")
        .columns(&[
            ("Min Available", "string", ".spec.minAvailable"),
            ("Max Unavailable", "string", ".spec.maxUnavailable"),
            ("Allowed Disruptions", "integer", ".status.disruptionsAllowed"),
        ])
        .rules(Rules::Budget);
    for version in &mut kind.versions {
        version.columns[..2]
            .iter_mut()
            .for_each(|column| column.absent = json!("N/A"));
    }
    kind
}
