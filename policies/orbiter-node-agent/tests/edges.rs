//! The table of cases, run natively.

use std::collections::BTreeSet;

use orbiter_node_agent::cases::{self, Case};

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, orbiter_node_agent::reconcile)));
}

orbiter_node_agent::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    let manifest = orbiter_node_agent::manifest();
    let ids: BTreeSet<&str> = manifest
        .as_contract()
        .edges
        .iter()
        .map(|edge| edge.id.as_str())
        .collect();
    let cases = cases::all();
    let noted = cases
        .iter()
        .flat_map(|(_, case)| case.edges())
        .map(String::as_str);
    assert_eq!(noted.collect::<BTreeSet<_>>(), ids);
}

/// It sees and writes its own Node, and nothing else of the cluster.
#[test]
fn an_agent_needs_nothing_but_its_machine() {
    let manifest = orbiter_node_agent::manifest();
    let manifest = manifest.as_contract();
    assert!(
        manifest
            .needs
            .iter()
            .all(|need| matches!(need, polity_sdk::Need::Cloud(name) if name.starts_with("node.")))
    );
    assert_eq!((&manifest.finalizer, &manifest.crd), (&None, &None));
}
