//! The table of cases, run natively.

use orbiter_node_agent::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, orbiter_node_agent::reconcile)));
}

orbiter_node_agent::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&orbiter_node_agent::manifest(), &orbiter_node_agent::cases::all());
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
