//! The edges of the workflow that a pass took: those that the policy noted, and those that the host derives
//! from the recording.

use std::collections::BTreeMap;

use polity_core::contract::{Manifest, Next};
use polity_core::record::{Outcome, PassRecord};

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
