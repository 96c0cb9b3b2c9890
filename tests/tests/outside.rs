//! A policy outside this repository: the crate of the SDK's README, written from that page into a folder of
//! its own, tested, built with the page's commands, and run by the host.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::page::{Page, command, repository, succeeds};

const PAGE: Page = Page(include_str!("../../policies/sdk/README.md"));
/// The packages that its crate depends on, and where they are here.
const PACKAGES: [(&str, &str); 2] = [
    ("polity-sdk", "policies/sdk"),
    ("polity-sdk-build", "policies/sdk/build"),
];

/// A line of the page, as its author types it.
fn typed(line: &str, folder: &Path) -> Command {
    let mut words = line.split_whitespace();
    let program = match words.next().expect("a command") {
        "polity" => env!("CARGO_BIN_EXE_polity-under-test"),
        program => program,
    };
    let mut command = command(program, folder);
    command.args(words);
    command
}

#[test]
fn the_policy_of_the_readme_is_tested_built_and_run_outside_of_this_repository() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path();
    assert!(
        !folder.starts_with(repository()),
        "{} lies inside",
        folder.display()
    );
    PAGE.write(folder, &PACKAGES);

    let tested = succeeds(typed("cargo test", folder));
    assert!(tested.contains("a_lamp_follows_its_switch ... ok"), "{tested}");

    // What a deployment does: the files that the page's command makes.
    let said = succeeds(typed(&PAGE.commands("build"), folder));
    assert!(said.contains("policy        lamp "), "{said}");
    assert!(folder.join("lamp.wasm").is_file());
    let binding = fs::read_to_string(folder.join("run/binding.yaml")).expect("the page has it");
    fs::create_dir(folder.join("deployed")).expect("created");
    fs::copy(folder.join("lamp.wasm.gz"), folder.join("deployed/lamp.wasm.gz")).expect("copied");
    fs::copy(folder.join("run/lamp.yaml"), folder.join("deployed/lamp.yaml")).expect("copied");
    let by_file = binding.replace("crate: ..", "file: lamp.wasm.gz");
    fs::write(folder.join("deployed/binding.yaml"), by_file).expect("written");
    runs(typed("polity run deployed --until-settled", folder));

    // What its author does: the host builds the crate.
    runs(typed(&PAGE.commands("run"), folder));

    forgets_the_build_script(folder);
}

/// The lamp is lit, and the policy costs no more memory than one of this repository.
fn runs(command: Command) {
    let said = succeeds(command);
    assert!(said.contains("LAMP-01"), "{said}");
    assert!(said.contains("a step begins with"), "{said}");
    assert!(!said.contains("costs processor time"), "{said}");
}

fn forgets_the_build_script(folder: &Path) {
    fs::write(folder.join("build.rs"), "fn main() {}\n").expect("written");
    let mut built = typed(&PAGE.commands("build"), folder);
    let Output { status, stderr, .. } = built.output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{said}");
    assert!(
        said.contains("let build.rs call polity_sdk_build::link()"),
        "{said}"
    );
}
