//! `polity test`: the scenarios of folders, played side by side.

use std::fs;
use std::process::{Command, Output};

use polity_tests::examples::{copy, copy_with};

fn test(args: &[&str], at: &std::path::Path) -> Output {
    let mut polity = Command::new(env!("CARGO_BIN_EXE_polity-under-test"));
    // The recordings of scenarios that fail stay in the temporary folder.
    polity.arg("test").args(args).current_dir(at).env("TMPDIR", at);
    polity.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn scenarios_that_hold_and_one_that_fails_are_told_apart_and_ci_is_told() {
    let place = tempfile::tempdir().expect("a folder");
    let wrong = ("nine machines run", "eight machines run");
    let count = (
        "      namespace: team-a\n      count: 9",
        "      namespace: team-a\n      count: 8",
    );
    for (name, example) in [
        ("holds", copy("capv-machine")),
        ("fails", copy_with("capv-machine", &[wrong, count])),
    ] {
        fs::rename(example.path(), place.path().join(name)).expect("moved");
    }
    let tested = test(&["--junit", "report.xml"], place.path());
    let printed = text(&tested.stdout);
    assert_eq!(
        tested.status.code(),
        Some(1),
        "{printed}\n{}",
        text(&tested.stderr)
    );
    for expected in [
        "ok     ./holds  ",
        "FAILED ./fails  ",
        "not as expected: eight machines run with addresses",
        "its recording is ",
        "2 scenarios: 1 hold, 1 failed",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(
        !printed.contains("not as expected: there is exactly one VM"),
        "{printed}"
    );
    let report = fs::read_to_string(place.path().join("report.xml")).expect("written");
    assert!(report.contains("tests=\"2\" failures=\"1\""), "{report}");
    assert!(
        text(&tested.stderr).contains("edges that no scenario took: CAPV-"),
        "{}",
        text(&tested.stderr)
    );

    let holds = test(&["-o", "json", "holds"], place.path());
    assert_eq!(holds.status.code(), Some(0), "{}", text(&holds.stderr));
    let told: serde_json::Value = serde_json::from_slice(&holds.stdout).expect("one document");
    assert_eq!(
        (&told["holds"], &told["scenario"]),
        (&true.into(), &"holds".into())
    );
    let none = test(&["holds/recordings"], place.path());
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stdout));
}
