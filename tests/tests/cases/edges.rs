//! `polity edges` over the recordings of the cases finds every id of every specification, and no other id.

use std::process::Command;

#[test]
fn the_cases_take_every_edge_of_every_specification() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorded = crate::cases::Recorded::into(folder.path());
    crate::cases::capv::run_all(&recorded);
    crate::cases::mcm::run_all(&recorded);
    crate::cases::capa::run_all(&recorded);
    crate::cases::orbiter::run_all(&recorded);
    crate::cases::rug::run_all(&recorded);
    drop(recorded);
    let edges = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .arg("edges")
        .arg(folder.path())
        .output()
        .expect("it runs");
    let (table, said) = (
        String::from_utf8_lossy(&edges.stdout),
        String::from_utf8_lossy(&edges.stderr),
    );
    assert!(edges.status.success(), "{said}");
    for id in [
        "CAPV-38", "MCM-R25x", "MCM-X51", "CAPA-19", "CAPA-N11", "CAPA-P8", "ORB-32", "RUG-31",
    ] {
        assert!(table.contains(id), "{id} is missing: {table}");
    }
}
