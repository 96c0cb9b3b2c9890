//! `polity edges` over what the scenarios recorded: every id of the specification, and no other.

use std::path::PathBuf;
use std::process::Command;

/// The table of a policy over these recordings, in which nothing is missing and nothing unknown.
fn every_edge_of(policy: &str, recordings: &[PathBuf]) -> String {
    let (table, said) = edges_of(policy, recordings);
    assert_eq!(said, "", "{table}");
    table
}

/// The table of a policy over these recordings, and what is wrong with it.
fn edges_of(policy: &str, recordings: &[PathBuf]) -> (String, String) {
    let edges = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["edges", "--all", "--policy", policy])
        .args(recordings)
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&edges.stderr);
    assert_eq!(edges.status.success(), said.is_empty(), "{said}");
    (text(&edges.stdout), said)
}

#[test]
fn the_scenarios_take_every_edge_of_capv() {
    let recordings = super::capv::recordings();
    let table = every_edge_of("capv-machine", &recordings);
    for id in 1..=51 {
        assert!(table.contains(&format!("CAPV-{id:02}")), "{table}");
    }
}

#[test]
fn the_scenarios_take_every_edge_of_capa() {
    use super::capa;
    let recordings = [
        capa::recordings(),
        capa::guard::recordings(),
        capa::refusals::recordings(),
    ]
    .concat();
    // Somebody else makes the identity between a look and the act; and what the schema of the kind refuses. The cases
    // take them.
    let (_, said) = edges_of("capa-identity", &recordings);
    assert_eq!(said, "polity: never taken: CAPA-25, CAPA-N12\n");
}

/// What no scenario brings about: a look at one thing that fails between two that do not, and a host that ends between
/// the two writes of a publication. The cases take them.
const NOT_FROM_OUTSIDE: [&str; 7] = [
    "MCM-R28x", "MCM-X24", "MCM-X31", "MCM-X41", "MCM-C01", "MCM-H01", "MCM-S02",
];

#[test]
fn the_scenarios_take_every_edge_of_mcm_that_can_be_brought_about() {
    let recordings = super::mcm::recordings();
    every_edge_of("mcm-machineclass", &recordings);
    every_edge_of("mcm-machineset", &recordings);
    every_edge_of("mcm-safety", &recordings);
    let (_, said) = edges_of("mcm-machine", &recordings);
    let never = format!("polity: never taken: {}\n", NOT_FROM_OUTSIDE.join(", "));
    assert_eq!(said, never);
}

#[test]
fn the_scenarios_take_every_edge_of_orbiter_and_its_node_agent() {
    let recordings = super::orbiter::recordings();
    let orbiter = every_edge_of("orbiter", &recordings);
    let agent = every_edge_of("orbiter-node-agent", &recordings);
    for id in ["ORB-01", "ORB-09a", "ORB-15n", "ORB-28", "ORB-37"] {
        assert!(orbiter.contains(id), "{orbiter}");
    }
    for id in ["ORB-06", "ORB-12", "ORB-32"] {
        assert!(agent.contains(id), "{agent}");
    }
}

#[test]
fn the_scenarios_take_every_edge_of_rug() {
    let recordings = super::rug::recordings();
    let table = every_edge_of("rug-router", &recordings);
    let (drawn, added) = (
        (1..=31).map(|id| format!("RUG-{id:02}")),
        (1..=17).map(|id| format!("RUG-X{id:02}")),
    );
    for id in drawn.chain(added) {
        assert!(table.contains(&id), "{id}: {table}");
    }
}
