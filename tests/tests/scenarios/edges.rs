//! `polity edges` over what the scenarios recorded: every id of the specification, and no other.

use std::process::Command;

#[test]
fn the_scenarios_take_every_edge_of_capv() {
    let recordings = tempfile::tempdir().expect("a folder");
    super::capv::record_all(recordings.path());
    let folders = std::fs::read_dir(recordings.path()).expect("a folder");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let edges = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["edges", "--policy", "capv-machine"])
        .args(folders)
        .output()
        .expect("it runs");
    let (table, said) = (
        String::from_utf8_lossy(&edges.stdout),
        String::from_utf8_lossy(&edges.stderr),
    );
    assert!(edges.status.success(), "{table}{said}");
    for id in 1..=38 {
        assert!(table.contains(&format!("CAPV-{id:02}")), "{table}");
    }
}
