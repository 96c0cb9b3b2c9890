//! `polity edges` over what the scenarios recorded: every id of the specification, and no other.

use std::path::Path;
use std::process::Command;

/// The table of a policy over these recordings, in which nothing is missing and nothing unknown.
fn every_edge_of(policy: &str, recordings: &Path) -> String {
    let (table, said) = edges_of(policy, recordings);
    assert_eq!(said, "", "{table}");
    table
}

/// The table of a policy over these recordings, and what is wrong with it.
fn edges_of(policy: &str, recordings: &Path) -> (String, String) {
    let folders = std::fs::read_dir(recordings).expect("a folder");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let edges = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["edges", "--policy", policy])
        .args(folders)
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&edges.stderr);
    assert_eq!(edges.status.success(), said.is_empty(), "{said}");
    (text(&edges.stdout), said)
}

#[test]
fn the_scenarios_take_every_edge_of_capv() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::capv::record_all(recordings.path());
    let table = every_edge_of("capv-machine", recordings.path());
    for id in 1..=41 {
        assert!(table.contains(&format!("CAPV-{id:02}")), "{table}");
    }
}

#[test]
fn the_scenarios_take_every_edge_of_capa() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::capa::record_all(recordings.path());
    super::capa::guard::record_all(recordings.path());
    super::capa::refusals::record_all(recordings.path());
    // Somebody else makes the identity between a look and the act; and what the schema of the kind refuses. The cases
    // take them.
    let (_, said) = edges_of("capa-identity", recordings.path());
    assert_eq!(said, "polity: never taken: CAPA-25, CAPA-N12\n");
}

/// What no scenario brings about: a look at one thing that fails between two that do not, and a host that ends between
/// the two writes of a publication. The cases take them.
const NOT_FROM_OUTSIDE: [&str; 5] = ["MCM-X31", "MCM-X41", "MCM-C01", "MCM-H01", "MCM-S02"];

#[test]
fn the_scenarios_take_every_edge_of_mcm_that_can_be_brought_about() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::mcm::record_all(recordings.path());
    every_edge_of("mcm-safety", recordings.path());
    let (_, said) = edges_of("mcm-machine", recordings.path());
    let never = format!("polity: never taken: {}\n", NOT_FROM_OUTSIDE.join(", "));
    assert_eq!(said, never);
}

#[test]
fn the_scenarios_take_every_edge_of_orbiter_and_its_node_agent() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::orbiter::record_all(recordings.path());
    let orbiter = every_edge_of("orbiter", recordings.path());
    let agent = every_edge_of("orbiter-node-agent", recordings.path());
    for id in ["ORB-01", "ORB-09a", "ORB-15n", "ORB-28", "ORB-37"] {
        assert!(orbiter.contains(id), "{orbiter}");
    }
    for id in ["ORB-06", "ORB-12", "ORB-32"] {
        assert!(agent.contains(id), "{agent}");
    }
}

#[test]
fn the_scenarios_take_every_edge_of_rug() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::rug::record_all(recordings.path());
    let table = every_edge_of("rug-router", recordings.path());
    let (drawn, added) = (
        (1..=31).map(|id| format!("RUG-{id:02}")),
        (1..=17).map(|id| format!("RUG-X{id:02}")),
    );
    for id in drawn.chain(added) {
        assert!(table.contains(&id), "{id}: {table}");
    }
}
