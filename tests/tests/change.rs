//! The page `policies/sdk/CHANGE.md`: a shell types its commands, one after the other.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use polity_tests::{examples, guests};

use crate::page::{Page, command, succeeds};

const PAGE: Page = Page(include_str!("../../policies/sdk/CHANGE.md"));

/// The commands of the page with this mark, in this folder.
fn typed(mark: &str, folder: &Path) -> Command {
    let mut shell = command("bash", folder);
    shell.args(["-euo", "pipefail", "-c", &PAGE.commands(mark)]);
    let found = std::env::var_os("PATH").unwrap_or_default();
    let programs = std::iter::once(folder.join("bin")).chain(std::env::split_paths(&found));
    shell.env("PATH", std::env::join_paths(programs).expect("paths"));
    shell
}

#[test]
fn a_reader_of_the_page_sees_what_a_change_would_do() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |name: &str| place.path().join(name);
    for folder in ["bin", "policies", "examples"] {
        fs::create_dir(at(folder)).expect("created");
    }
    symlink(env!("CARGO_BIN_EXE_polity-under-test"), at("bin/polity")).expect("linked");
    // Components, which this build has made already, in place of crates.
    symlink(
        guests::folder().join("capv_machine.wasm"),
        at("policies/capv-machine"),
    )
    .expect("linked");
    let example = examples::copy("capv-machine");
    symlink(example.path(), at("examples/capv-machine")).expect("linked");
    PAGE.write_files(place.path());
    let types = |mark| succeeds(typed(mark, place.path()));

    assert!(types("record").contains("everything is settled"));
    let again = types("again");
    assert!(again.starts_with("the recorded policies: 0 of "), "{again}");
    let slower = types("slower");
    let shown = "lifecycle next: after 20s → after 1m";
    assert_eq!(slower.matches("lifecycle next: ").count(), 1, "{slower}");
    assert!(slower.contains(shown) && PAGE.0.contains(shown), "{slower}");
    let explained = types("explain");
    for step in [
        "    step    1 of lifecycle knew 0 answers and wanted:\n    ",
        "answers and decided\n",
    ] {
        assert!(explained.contains(step), "{explained}");
    }
    let played = types("test");
    assert!(played.contains("1 scenario: 1 hold, 0 failed"), "{played}");
    let ci = types("ci");
    assert!(ci.contains(": 0 of "), "{ci}");
}
