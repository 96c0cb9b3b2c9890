//! The edges of the workflow that a pass took: those that the policy noted, and those that the host derives
//! from the recording.

use std::collections::BTreeMap;

use polity_core::contract::{Conclusion, Manifest, Next};
use polity_core::record::{Outcome, PassRecord, RoleRecord};

/// Whether the source of a derived edge applies to a pass.
fn holds(what: &str, record: &PassRecord, taken: &[String]) -> bool {
    let published = record.outcome.is_concluded();
    match what {
        "started" => true,
        "published" => published,
        "concluded" => record.next.is_some(),
        "requeued" => published && matches!(record.next, Some(Next::After(_))),
        "settled" | "succeeded" => published && matches!(record.next, Some(Next::Settled(_))),
        "failed" => {
            matches!(record.next, Some(Next::Retry { .. })) || matches!(record.outcome, Outcome::Failed(_))
        }
        id => taken.iter().any(|t| t == id),
    }
}

/// The edges that a pass took: its notes in their order, then derived edges in the order of the manifest.
pub fn taken(record: &PassRecord, manifests: &BTreeMap<String, Manifest>) -> Vec<String> {
    let mut taken: Vec<String> = record.notes().map(str::to_owned).collect();
    let policies: Vec<&Manifest> = record
        .roles
        .iter()
        .filter_map(|role| manifests.get(&*role.policy.0))
        .collect();
    for manifest in policies {
        for edge in &manifest.edges {
            let derived = edge.derived_from.as_deref().is_some_and(|what| {
                // A source such as `requeued failed` applies if one of its words applies.
                what.split_whitespace().any(|what| holds(what, record, &taken))
            });
            if derived && !taken.contains(&edge.id) {
                taken.push(edge.id.clone());
            }
        }
    }
    taken
}

/// The meaning of an edge, as a policy's table has it; the id itself if the table does not have it.
pub(crate) fn sentence<'a>(id: &'a str, manifest: Option<&'a Manifest>) -> &'a str {
    let mut edges = manifest.into_iter().flat_map(|manifest| &manifest.edges);
    edges
        .find(|edge| edge.id == id)
        .map_or(id, |edge| edge.meaning.as_str())
}

/// What happened last in a pass: the sentence of the last edge that its last policy noted. A sentence in parentheses only
/// says how the flow goes on, so the one before it counts. A policy that notes nothing is represented by its last
/// Kubernetes event. `None` if the pass has nothing to tell: then what happened before it still holds.
pub(crate) fn event<'a>(
    record: &'a PassRecord,
    manifests: &'a BTreeMap<String, Manifest>,
) -> Option<&'a str> {
    let RoleRecord {
        policy,
        conclusion: Some(Conclusion { notes, events, .. }),
        ..
    } = record.roles.last()?
    else {
        return None;
    };
    let manifest = manifests.get(&*policy.0);
    let mut told = notes.iter().rev().map(|id| sentence(id, manifest));
    let told = told.find(|sentence| !sentence.starts_with('('));
    // The message of a pass that failed is its failure once more.
    let is_failure = matches!(record.next, Some(Next::Retry { .. }));
    let events = events.last().filter(|_| !is_failure);
    told.or_else(|| events.map(|event| event.message.as_str()))
        .map(|sentence| sentence.trim_end_matches('.'))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A pass of a deleting or live object that noted these edges.
    pub(crate) fn pass(notes: &[&str], outcome: &str, is_deleting: bool) -> PassRecord {
        let mut metadata = json!({"name": "one", "finalizers": ["example.org/x"]});
        if is_deleting {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let conclusion = json!({
            "patch": json!({"metadata": {"finalizers": null}}).to_string(), "events": [], "notes": notes, "used": [],
            "next": {"settled": 20_000},
        });
        let record = json!({
            "pass": 1, "key": {"binding": "b", "namespace": "a", "name": "one"},
            "kind": {"apiVersion": "example.org/v1", "kind": "Machine"}, "uid": "u", "causes": [], "attempt": 0,
            "started": {"boot": 0, "unix": 0}, "ended": {"boot": 0, "unix": 0},
            "object": json!({"metadata": metadata}).to_string(), "outcome": outcome, "writes": [],
            "next": {"settled": 20_000}, "wait": 20_000,
            "roles": [{
                "role": "lifecycle", "policy": "p", "config": "{}", "pending": [], "steps": 1, "fuel": 0, "journal": [],
                "verdict": null, "conclusion": conclusion, "fault": null,
            }],
        });
        serde_json::from_value(record).expect("a pass")
    }

    #[test]
    fn the_last_event_is_the_last_sentence_that_tells_something() {
        let manifest = json!({
            "name": "machines", "version": "1", "role": "lifecycle", "configSchema": {},
            "edges": [
                {"id": "A", "meaning": "A pass begins.", "derivedFrom": "started"},
                {"id": "B", "meaning": "The clone failed."},
                {"id": "C", "meaning": "(The machine lives.)"},
            ],
        });
        let manifest: Manifest = serde_json::from_value(manifest).expect("a manifest");
        let manifests = BTreeMap::from([("p".to_owned(), manifest)]);
        for (notes, told) in [
            (&["B", "C"][..], Some("The clone failed")),
            (&["B", "an id of no table"], Some("an id of no table")),
            (&["C"], None),
            (&[], None),
        ] {
            let record = pass(notes, "published", false);
            assert_eq!(event(&record, &manifests), told, "{notes:?}");
            assert!(taken(&record, &manifests).contains(&"A".to_owned()));
        }
        let unknown = pass(&["B"], "published", false);
        assert_eq!(event(&unknown, &BTreeMap::new()), Some("B"));
    }
}
