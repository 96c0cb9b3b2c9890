//! `polity edges` over what the scenarios recorded: every id of the specification, and no other.

use std::path::Path;
use std::process::Command;

/// The table of a policy over these recordings, in which nothing is missing and nothing unknown.
fn every_edge_of(policy: &str, recordings: &Path) -> String {
    let folders = std::fs::read_dir(recordings).expect("a folder");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let edges = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["edges", "--policy", policy])
        .args(folders)
        .output()
        .expect("it runs");
    let (table, said) = (
        String::from_utf8_lossy(&edges.stdout).into_owned(),
        String::from_utf8_lossy(&edges.stderr),
    );
    assert!(edges.status.success(), "{table}{said}");
    table
}

#[test]
fn the_scenarios_take_every_edge_of_capv() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::capv::record_all(recordings.path());
    let table = every_edge_of("capv-machine", recordings.path());
    for id in 1..=38 {
        assert!(table.contains(&format!("CAPV-{id:02}")), "{table}");
    }
}

#[test]
fn the_scenarios_take_every_edge_of_capa() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::capa::record_all(recordings.path());
    super::capa::guard::record_all(recordings.path());
    super::capa::refusals::record_all(recordings.path());
    let table = every_edge_of("capa-identity", recordings.path());
    for id in ["CAPA-01", "CAPA-23", "CAPA-N11", "CAPA-P8"] {
        assert!(table.contains(id), "{table}");
    }
}
