//! The table of cases, run natively.

use capv_machine::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::lifecycle(pass, capv_machine::reconcile)));
}

capv_machine::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&capv_machine::manifest(), &capv_machine::cases::all());
}

#[test]
fn every_edge_has_an_id_of_its_own_and_is_derived_from_what_there_is() {
    let manifest = capv_machine::manifest();
    let edges = &manifest.as_contract().edges;
    let mut ids: Vec<&str> = edges.iter().map(|edge| edge.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), edges.len());
    for n in 1..=38 {
        assert!(ids.contains(&format!("CAPV-{n:02}").as_str()), "CAPV-{n:02}");
    }
    for edge in edges {
        for from in edge.derived_from.iter().flat_map(|from| from.split(' ')) {
            let known = ["started", "published", "requeued", "failed", "succeeded"].contains(&from);
            assert!(known || ids.contains(&from), "{} is derived from {from}", edge.id);
        }
    }
}
