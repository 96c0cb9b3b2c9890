//! `polity test`: the scenarios of folders, played side by side.

use std::fs;
use std::process::{Command, Output};

use polity_tests::examples::{ALL, copy, copy_with, source};

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
    let failure =
        "<failure message=\"not as expected: eight machines run with addresses and hold their finalizer\">";
    assert!(report.contains(failure), "{report}");
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

#[test]
fn each_shipped_example_holds_and_does_what_its_timeline_tells() {
    let place = tempfile::tempdir().expect("a folder");
    for example in ALL {
        let folder = place.path().join(example);
        fs::rename(copy(example).path(), &folder).expect("moved");
        // In `everything` two objects may change in either order, and the passes of the others with them.
        let timeline = source(example).join("timeline.txt");
        assert_eq!(timeline.is_file(), example != "everything", "{example}");
        if timeline.is_file() {
            fs::copy(timeline, folder.join("timeline.txt")).expect("copied");
        }
    }
    let tested = test(&["."], place.path());
    let printed = text(&tested.stdout);
    assert_eq!(tested.status.code(), Some(0), "{printed}");
    assert!(printed.contains("7 scenarios: 7 hold"), "{printed}");
}

#[test]
fn a_step_that_is_never_taken_is_named_with_what_it_waits_for() {
    let condition = (
        "status.phase\n    delete",
        "status.phase\n      equals: Flying\n    delete",
    );
    let example = copy_with("capv-machine", &[condition]);
    let tested = test(&["."], example.path());
    let printed = text(&tested.stdout);
    assert_eq!(tested.status.code(), Some(1), "{printed}");
    let left = "a step of the scenario is left: to delete Machine team-a/machine-06, \
        when status.phase of Machine team-a/machine-06 is \"Flying\"";
    assert!(printed.contains(left), "{printed}");
}
