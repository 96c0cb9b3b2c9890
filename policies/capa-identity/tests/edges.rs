//! The table of cases, run natively.

use std::collections::BTreeSet;

use capa_identity::cases::{self, Case};
use polity_sdk::{Next, Verdict};

fn natively(case: Case) {
    case.check_judged(&case.judge(|pass| polity_sdk::step::identity(pass, capa_identity::judge)));
}

capa_identity::each_case!(natively);

#[test]
fn every_edge_has_a_case_and_every_note_is_an_edge() {
    polity_sdk::test::check_edges(&capa_identity::manifest(), &capa_identity::cases::all());
}

#[test]
fn every_edge_of_the_specification_is_there() {
    let manifest = capa_identity::manifest();
    let edges = &manifest.as_contract().edges;
    let ids: BTreeSet<&str> = edges.iter().map(|edge| edge.id.as_str()).collect();
    assert_eq!(ids.len(), edges.len());
    for (prefix, count) in [("CAPA-N", 12), ("CAPA-P", 9)] {
        for n in 1..=count {
            assert!(ids.contains(format!("{prefix}{n}").as_str()), "{prefix}{n}");
        }
    }
    for n in 1..=25 {
        assert!(ids.contains(format!("CAPA-{n:02}").as_str()), "CAPA-{n:02}");
    }
}

/// No pass is repeated without a wait. Every denial has an Event, and no other verdict has one.
#[test]
fn no_case_is_denied_into_a_hot_loop() {
    for (name, case) in cases::all() {
        let (verdict, ended) = case.judge(|pass| polity_sdk::step::identity(pass, capa_identity::judge));
        let hot = matches!(ended.next, Next::Settled(Some(ms)) | Next::After(ms) if ms < 1_000);
        assert!(!hot, "{name}: {}", ended.next);
        let denied = verdict == Verdict::Denied;
        assert_eq!(
            denied,
            !ended.events.is_empty(),
            "{name}: a denial says why, and nothing else does"
        );
    }
}
