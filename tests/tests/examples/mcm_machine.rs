//! The example `mcm-machine`.

use polity_core::record::PassRecord;
use polity_tests::passes::edges_of;

use crate::ec2::ON_SIM;

/// Requires that the object took these edges in this order, whatever else it did.
fn assert_in_order(passes: &[PassRecord], ids: &[&str]) {
    let taken: Vec<String> = passes.iter().map(|pass| edges_of(pass, "MCM-")).collect();
    let mut left = ids;
    for id in taken.iter().flat_map(|edges| edges.split(' ')) {
        if left.first() == Some(&id) {
            left = &left[1..];
        }
    }
    assert!(left.is_empty(), "{left:?} of {ids:?} never came: {taken:#?}");
}

#[test]
fn machines_join_rest_and_are_drained() {
    let ran = super::run("mcm-machine");
    let machine = |name: &str| ran.passes("Machine", &format!("team-a/{name}"));

    let batch = machine("batch-1");
    assert_in_order(
        &batch,
        &[
            "R10", "C04", "C06", "C10", "C11", "H05", "S05", "S06", "S07", "S08",
        ],
    );
    assert_in_order(&machine("batch-2"), &["C04", "C07", "C06", "H05"]);
    assert_in_order(&machine("web-2"), &["H05", "H04", "H11", "H06", "S08"]);
    assert_in_order(&machine("web-3"), &["R25x", "R26x", "S08"]);
    let deleted = [
        "D05", "D09", "D14", "D10", "X17", "X15", "X17", "X13", "X20", "X30", "X40",
    ];
    assert_in_order(&machine("web-1"), &deleted);
    let safety = ran.passes("MachineSafety", "default");
    assert_in_order(&safety, &["F01", "F02", "F03", "F04", "F05", "F06"]);

    // Nobody was given up, and nothing was done by force.
    let table = ran.edges("mcm-machine");
    for never in ["MCM-H07", "MCM-H08", "MCM-X12"] {
        let line = table.lines().find(|line| line.starts_with(never));
        let count = line.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(count, Some("0"), "{table}");
    }
    let refused = ran.explained("Machine", "team-a/web-1");
    assert!(
        refused.contains("violate the pod's disruption budget"),
        "{refused}"
    );
}

#[test]
fn the_policies_of_the_machines_on_ec2_run_byte_for_byte_on_the_simulated_cloud() {
    let folder = polity_tests::examples::copy("aws-machines");
    let file = folder.path().join("bindings.yaml");
    let bindings = std::fs::read_to_string(&file).expect("readable");
    let elsewhere = bindings.replace(ON_SIM.0, ON_SIM.1);
    assert_ne!(bindings, elsewhere);
    std::fs::write(&file, elsewhere).expect("written");
    let ran = super::run_in(&folder);
    for name in ["web-1", "web-2"] {
        assert_in_order(
            &ran.passes("Machine", &format!("team-a/{name}")),
            &["R10", "C04", "C06", "C10", "H05"],
        );
    }
    let passes = ran.asked(&["explain", "Machine", "team-a/web-1", "--recordings"]);
    assert!(passes.contains("verdict Granted"), "{passes}");
}
