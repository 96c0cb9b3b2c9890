//! The tables of cases, run natively.

use std::collections::BTreeSet;

use mcm_machine::cases::{self, Case};

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, mcm_machine::reconcile)));
}

mcm_machine::each_case!(natively);

#[test]
fn every_edge_has_a_case_or_is_derived_and_every_note_is_an_edge() {
    let manifest = mcm_machine::manifest();
    let edges = &manifest.as_contract().edges;
    let cases = cases::all();
    let noted: BTreeSet<&str> = cases
        .iter()
        .flat_map(|(_, case)| case.edges())
        .map(String::as_str)
        .collect();
    let ids: BTreeSet<&str> = edges.iter().map(|edge| edge.id.as_str()).collect();
    assert_eq!(ids.len(), edges.len(), "an id is there twice");
    assert_eq!(noted.difference(&ids).collect::<Vec<_>>(), Vec::<&&str>::new());
    for edge in edges {
        match &edge.derived_from {
            None => assert!(noted.contains(edge.id.as_str()), "{} has no case", edge.id),
            Some(from) => {
                for from in from.split(' ') {
                    assert!(
                        from == "started" || ids.contains(from),
                        "{} is derived from {from}",
                        edge.id
                    );
                }
            }
        }
    }
}
