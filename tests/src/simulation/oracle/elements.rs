//! Compares two versions of an object: the elements that a change touched, and those that no policy may change.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Rule, Verdict, ensure};
use crate::simulation::store::Change;

/// A host changed nothing that is its own, or somebody else's, into what a policy says. Policies of wild worlds forge
/// entries of an operation `forged.…`, conditions `polity.dev/Forged`, and would remove the finalizer of somebody else.
pub(super) fn host_owned(change: &Change) -> Verdict {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return Ok(());
    };
    let (before, after) = (&before.tree(), &after.tree());
    let holds = |object: &Value, finalizer: &str| {
        let all = object["metadata"]["finalizers"].as_array();
        all.is_some_and(|all| all.iter().any(|f| f == finalizer))
    };
    let pending = |object: &Value| object["status"]["pending"].clone();
    // What they do may be called so too: an entry names its intent.
    let forged = |object: &Value| {
        let mut entries = pending(object)
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter();
        entries.any(|entry| {
            entry["operation"]
                .as_str()
                .is_some_and(|o| o.starts_with("forged."))
        })
    };
    let wrong = |object: &Value| !(pending(object).is_null() || pending(object).is_array());
    let condition = |object: &Value| {
        let all = object["status"]["conditions"].as_array();
        all.is_some_and(|all| all.iter().any(|c| c["type"] == "polity.dev/Forged"))
    };
    let told = |what: &str| {
        format!(
            "{} changed {what} of {:?}: {before} became {after}",
            change.author, change.place
        )
    };
    ensure(!forged(after) || forged(before), Rule::HostOwned, || {
        told("pending entries")
    })?;
    ensure(!wrong(after) || wrong(before), Rule::HostOwned, || {
        told("pending entries")
    })?;
    ensure(!condition(after) || condition(before), Rule::HostOwned, || {
        told("host conditions")
    })?;
    let keep = "other.example/keep";
    ensure(
        !holds(before, keep) || holds(after, keep),
        Rule::HostOwned,
        || told("the finalizer of another"),
    )?;
    let owners = |object: &Value| object["metadata"]["ownerReferences"].clone();
    ensure(owners(before) == owners(after), Rule::HostOwned, || {
        told("owners")
    })
}

/// What a change changed: values of the spec and of the status, conditions by type, labels by key.
pub(super) fn changed_elements(change: &Change) -> Vec<String> {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return Vec::new();
    };
    let (before, after) = (elements(&before.tree()), elements(&after.tree()));
    let differs = |(name, value): &(&String, &Value)| before.get(*name) != Some(*value);
    // An empty object that is filled is there as before.
    let is_filled = |name: &String, value: &Value| {
        let below = format!("{name}.");
        *value == json!({}) && after.keys().any(|name| name.starts_with(&below))
    };
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone
        .filter(|(name, value)| !is_filled(name, value))
        .map(|(name, _)| name.clone());
    after
        .iter()
        .filter(differs)
        .map(|(name, _)| name.clone())
        .chain(gone)
        .collect()
}

/// An object in parts, each of which somebody else may write.
pub(super) fn elements(object: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    values("spec", &object["spec"], &mut found);
    for part in ["labels", "annotations"] {
        for (name, value) in object["metadata"][part].as_object().into_iter().flatten() {
            found.insert(format!("{part}.{name}"), value.clone());
        }
    }
    for (name, value) in object["status"].as_object().into_iter().flatten() {
        if name != "conditions" {
            values(&format!("status.{name}"), value, &mut found);
        }
    }
    for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
        let kind = condition["type"].as_str().unwrap_or_default();
        found.insert(format!("condition {kind}"), condition.clone());
    }
    found
}

/// The values below a path: two people who edit different ones do not meet.
fn values(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        None => drop(found.insert(path.to_owned(), value.clone())),
        Some(fields) => {
            for (name, value) in fields {
                values(&format!("{path}.{name}"), value, found);
            }
        }
    }
}
