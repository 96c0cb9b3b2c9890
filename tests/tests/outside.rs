//! Policies outside this repository: the crates of the SDK's guides, written from their pages into folders beside each
//! other, tested, built with the pages' commands, and run by the host.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::page::{Page, command, repository, succeeds};

/// A page that is a whole policy.
struct Guide {
    /// The name of the crate, and of its folder.
    name: &'static str,
    page: Page,
    /// What its tests print.
    tested: &'static str,
    /// What the commands of its run print.
    seen: &'static [&'static str],
}

/// The guides. The later ones name the policy of the first in their bindings.
const GUIDES: [Guide; 3] = [
    Guide {
        name: "lamp",
        page: Page(include_str!("../../policies/sdk/README.md")),
        tested: "a_lamp_follows_its_switch ... ok",
        seen: &["The switch is on: the lamp is lit"],
    },
    Guide {
        name: "tenancy",
        page: Page(include_str!("../../policies/sdk/IDENTITY.md")),
        tested: "a_lamp_is_governed_where_its_namespace_allows_lamps ... ok",
        seen: &[
            r#"verdict Granted("none")"#,
            r#"patch   {"status":{"lit":true}}"#,
            "verdict Denied",
            "NotAllowed: namespace garden may not have lamps",
        ],
    },
    Guide {
        name: "patience",
        page: Page(include_str!("../../policies/sdk/RETRY.md")),
        tested: "what_is_refused_waits_for_a_change ... ok",
        seen: &[
            "permission-denied",
            "patience → a change, at the latest in 60m",
            "because: changed, attempt 1",
            r#"patch   {"status":{"lit":true}}"#,
        ],
    },
];
/// The packages that their crates depend on, and where they are here.
const PACKAGES: [(&str, &str); 2] = [
    ("polity-sdk", "policies/sdk"),
    ("polity-sdk-build", "policies/sdk/build"),
];

/// A line of a page, as its reader types it.
fn typed(line: &str, folder: &Path) -> Command {
    let mut words = line.split_whitespace();
    let program = match words.next().expect("a command") {
        "polity" => env!("CARGO_BIN_EXE_polity-under-test"),
        program => program,
    };
    let mut command = command(program, folder);
    command.args(words);
    // `explain` reads the newest recording. Other tests make some too, elsewhere.
    command.env("TMPDIR", folder);
    command
}

#[test]
fn the_policies_of_the_guides_are_tested_built_and_run_outside_of_this_repository() {
    let place = tempfile::tempdir().expect("a folder");
    assert!(
        !place.path().starts_with(repository()),
        "{} lies inside",
        place.path().display()
    );
    for guide in &GUIDES {
        let folder = &place.path().join(guide.name);
        guide.page.write(folder, &PACKAGES);

        let tested = succeeds(typed("cargo test", folder));
        assert!(tested.contains(guide.tested), "{tested}");

        // What a deployment does: the files that the pages' commands make.
        let built = succeeds(typed(&guide.page.commands("build"), folder));
        assert!(
            built.contains(&format!("policy        {} ", guide.name)),
            "{built}"
        );
        let deployed = &place.path().join("deployed").join(guide.name);
        deploy(&folder.join("run"), &deployed.join("run"));
        guide.runs(deployed);
    }
    // What their authors do: the host builds the crates.
    for guide in &GUIDES {
        guide.runs(&place.path().join(guide.name));
    }
    forgets_the_build_script(&place.path().join(GUIDES[0].name));
}

impl Guide {
    /// The objects become what the page says, and no policy costs more memory than one of this repository.
    fn runs(&self, folder: &Path) {
        let commands = self.page.commands("run");
        let said: String = commands
            .lines()
            .map(|line| succeeds(typed(line, folder)))
            .collect();
        for seen in self.seen {
            assert!(said.contains(seen), "{seen} is not in:\n{said}");
        }
        assert!(said.contains("a step begins with"), "{said}");
        assert!(!said.contains("costs processor time"), "{said}");
    }
}

/// Copies what is run, with the policies that were built. The binding names their files in place of the crates.
fn deploy(run: &Path, deployed: &Path) {
    fs::create_dir_all(deployed).expect("created");
    for file in fs::read_dir(run).expect("a folder") {
        let file = file.expect("a file");
        let text = fs::read_to_string(file.path()).expect("text");
        let lines = text.lines().map(|line| match line.split_once("crate: ") {
            None => format!("{line}\n"),
            Some((before, of)) => {
                let krate = run.join(of).canonicalize().expect("a crate");
                let policy = format!("{}.wasm.gz", krate.file_name().expect("a name").display());
                fs::copy(krate.join(&policy), deployed.join(&policy)).expect("it is built");
                format!("{before}file: {policy}\n")
            }
        });
        fs::write(deployed.join(file.file_name()), lines.collect::<String>()).expect("written");
    }
}

fn forgets_the_build_script(folder: &Path) {
    fs::write(folder.join("build.rs"), "fn main() {}\n").expect("written");
    let mut built = typed(&GUIDES[0].page.commands("build"), folder);
    let Output { status, stderr, .. } = built.output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{said}");
    assert!(
        said.contains("let build.rs call polity_sdk_build::link()"),
        "{said}"
    );
}
