//! The guides of policies, followed to the letter in a folder outside of this repository, with nothing but the program, Rust
//! and a registry: each policy is made, tested, built and run with the commands of its page.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Output, Stdio};

use tempfile::TempDir;

use crate::page::{Page, Running, repository, shell, succeeds};

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

const GUIDES: [Guide; 3] = [
    Guide {
        name: "lamplighter",
        page: Page(include_str!("../../policies/sdk/README.md")),
        tested: "it_follows_its_switch ... ok",
        seen: &[
            "The switch is on: it is lit",
            "as expected: the hall is lit",
            "because: ConfigMap hall-switch changed",
        ],
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

/// What goes on with the policy of the first guide.
const TESTING: Page = Page(include_str!("../../policies/sdk/TESTING.md"));

/// An author: a folder in which the policies of the guides come to be.
struct Author {
    place: TempDir,
}

/// A program that runs beside, and what it prints.
struct Beside {
    _running: Running,
    printed: BufReader<ChildStdout>,
}

impl Beside {
    /// The line that has these words, which the program prints sooner or later.
    fn prints(&mut self, wanted: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.printed.read_line(&mut line).expect("text");
            assert!(read > 0, "{wanted} was not printed, but:\n{all}");
            if line.contains(wanted) {
                return line;
            }
            all += &line;
        }
    }
}

impl Author {
    fn begin() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        assert!(
            !place.path().starts_with(repository()),
            "{} lies inside",
            place.path().display()
        );
        let author = Author { place };
        fs::create_dir(author.at("bin")).expect("created");
        symlink(env!("CARGO_BIN_EXE_polity-under-test"), author.at("bin/polity")).expect("linked");
        author
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn types(&self, commands: &str, folder: &str) -> String {
        succeeds(shell(commands, &self.at(folder), &self.at("bin")))
    }

    /// Makes the policy of a guide, which is what the page shows.
    fn makes(&self, guide: &Guide) {
        self.types(&guide.page.commands("new"), "");
        for (name, text) in guide.page.files() {
            let written = fs::read_to_string(self.at(guide.name).join(name));
            assert_eq!(written.expect(name), text, "{name}");
        }
        if guide.name != GUIDES[0].name {
            self.shares_the_sdk(&self.at(guide.name));
        }
    }

    /// Has the SDK of the first policy in place of an own one, so that it is compiled once.
    fn shares_the_sdk(&self, folder: &Path) {
        let vendor = self.at(GUIDES[0].name).join("vendor").display().to_string();
        for (manifest, own) in [("Cargo.toml", "vendor"), ("sample/Cargo.toml", "../vendor")] {
            let path = folder.join(manifest);
            let text = fs::read_to_string(&path).expect("a manifest");
            let shared = text.replace(&format!("\"{own}/"), &format!("\"{vendor}/"));
            assert_ne!(text, shared, "{manifest}");
            fs::write(path, shared).expect("written");
        }
    }

    /// Tests, builds and runs the policy of a guide.
    fn follows(&self, guide: &Guide) {
        self.makes(guide);
        let types = |mark| self.types(&guide.page.commands(mark), guide.name);
        let tested = types("test");
        assert!(tested.contains(guide.tested), "{tested}");
        let built = types("build");
        assert!(
            built.contains(&format!("policy        {} ", guide.name)),
            "{built}"
        );
        let said = types("run");
        for seen in guide.seen {
            assert!(said.contains(seen), "{seen} is not in:\n{said}");
        }
        assert!(said.contains("1 scenario: 1 hold, 0 failed"), "{said}");
        // No policy costs more memory than one of this repository.
        assert!(said.contains("a step begins with"), "{said}");
        assert!(!said.contains("costs processor time"), "{said}");
    }

    /// Starts a command that goes on.
    fn starts(&self, command: &str, folder: &str) -> Beside {
        let mut shell = shell(&format!("exec {command} 2>&1"), &self.at(folder), &self.at("bin"));
        // Its recordings go with the author.
        shell.env("TMPDIR", self.place.path());
        let started = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("it starts");
        let printed = BufReader::new(child.stdout.take().expect("it is piped"));
        Beside {
            _running: Running(child),
            printed,
        }
    }

    fn edits(&self, file: &str, from: &str, to: &str) {
        let path = self.at(file);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replace(from, to)).expect("written");
    }
}

#[test]
fn a_first_policy_is_made_tested_built_run_explained_changed_and_swapped_by_its_guide_alone() {
    let (author, guide) = (Author::begin(), &GUIDES[0]);
    author.follows(guide);
    let slower = "lifecycle next: after 20s → after 1m";
    let replayed = author.types(&guide.page.commands("change"), guide.name);
    assert_eq!(replayed.matches("lifecycle next: ").count(), 1, "{replayed}");
    assert!(
        replayed.contains(slower) && guide.page.0.contains(slower),
        "{replayed}"
    );

    let mut host = author.starts("polity run run --listen 0", guide.name);
    host.prints("lamplighter 0.1.0 is loaded");
    let mut dev = author.starts("polity dev", guide.name);
    dev.prints("waits for the next save");
    author.edits("lamplighter/src/lib.rs", "from_secs(20)", "from_secs(60)");
    dev.prints("src/lib.rs was saved");
    dev.prints("3 of 4 passes would be decided differently");
    dev.prints(slower);
    dev.prints("1 scenario: 1 hold, 0 failed");
    // The host goes on with the new version, without an end or a build of its own.
    host.prints("lamplighter 0.1.0 is loaded");
    dev.prints("waits for the next save");
    author.edits("lamplighter/src/lib.rs", "let lit = ", "let lit = = ");
    dev.prints("expected expression");
    dev.prints("the version before goes on");

    drop((host, dev));
    author.edits("lamplighter/src/lib.rs", "let lit = = ", "let lit = ");
    tests_as_the_page_says(&author);

    // A policy of each other role, with the first one as a sample.
    GUIDES[1..].iter().for_each(|guide| author.follows(guide));
    deploys(&author);
    forgets_the_build_script(&author);
}

fn tests_as_the_page_says(author: &Author) {
    let types = |mark| author.types(&TESTING.commands(mark), GUIDES[0].name);
    // The page goes on with the policy as its guide has it.
    author.edits("lamplighter/src/lib.rs", "from_secs(60)", "from_secs(20)");
    assert!(types("debug").contains("it_follows_its_switch ... ok"));
    assert!(types("scenario").contains("1 scenario: 1 hold, 0 failed"));
    types("junit");
    let report = fs::read_to_string(author.at("lamplighter/report.xml")).expect("a report");
    assert!(report.contains("failures=\"0\""), "{report}");
    let timeline = "Lamp home/hall\n    The switch is off or missing: it is dark\n    The switch is on: it is lit · settled\n";
    let told = types("update");
    assert!(told.contains(timeline) && TESTING.0.contains(timeline), "{told}");
    let explained = types("explain");
    let said =
        "    step    1 of lifecycle knew 1 answers and decided\n    debug   the switch is Some(\"on\")\n";
    assert!(
        explained.contains(said) && TESTING.0.contains(said),
        "{explained}"
    );
    author.edits("lamplighter/run/timeline.txt", "it is dark", "it is out");
    let mut otherwise = shell("polity test run", &author.at("lamplighter"), &author.at("bin"));
    let Output { status, stdout, .. } = otherwise.output().expect("it runs");
    let said = String::from_utf8_lossy(&stdout);
    assert!(
        !status.success() && said.contains("does otherwise than timeline.txt tells, at 1"),
        "{said}"
    );
}

/// The binding of a deployment names the file that was built.
fn deploys(author: &Author) {
    author.edits(
        "lamplighter/run/binding.yaml",
        "crate: ..",
        "file: lamplighter.wasm.gz",
    );
    let deployed = author.types(
        "cp lamplighter.wasm.gz run && polity run run --until-settled",
        GUIDES[0].name,
    );
    assert!(deployed.contains("as expected: the hall is lit"), "{deployed}");
}

fn forgets_the_build_script(author: &Author) {
    let name = GUIDES[1].name;
    fs::write(author.at(name).join("build.rs"), "fn main() {}\n").expect("written");
    let mut built = shell("polity policy build", &author.at(name), &author.at("bin"));
    let Output { status, stderr, .. } = built.output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{said}");
    assert!(
        said.contains("let build.rs call polity_sdk_build::link()"),
        "{said}"
    );
}
