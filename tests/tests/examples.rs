//! The shipped examples, run to their ends as a user runs them: the binary, the manifests, the recording, and
//! the commands that read it.

mod capa_tenancy;
mod everything;
mod mcm_machine;
mod orbiter_upgrade;
mod rug_router;
mod two_teams;

use std::path::PathBuf;
use std::process::{Command, Output};

use polity::recording::Recording;
use polity_core::record::PassRecord;
use polity_tests::evidence::wrong_notes;
use polity_tests::passes;
use tempfile::TempDir;

/// An example that ran to its end, in which everything was as it expects and each pass had done what it noted.
struct Ran {
    recording: PathBuf,
    _folder: TempDir,
}

/// Runs an example until everything is settled.
fn run(example: &str) -> Ran {
    run_in(&polity_tests::examples::copy(example))
}

/// Runs the copy of an example until everything is settled.
fn run_in(folder: &TempDir) -> Ran {
    let recording = tempfile::tempdir().expect("a folder");
    let run = polity()
        .args(["run", "--until-settled", "--speed", "max", "--record"])
        .arg(recording.path())
        .arg(folder.path())
        .output()
        .expect("it runs");
    let said = shown(&run);
    assert!(run.status.success(), "{said}");
    assert!(
        said.contains("everything is settled") && !said.contains("not as expected"),
        "{said}"
    );
    let lines = text(&run.stdout);
    let too_long: Vec<&str> = lines.lines().filter(|line| line.chars().count() > 140).collect();
    assert_eq!(too_long, [""; 0], "of {example:?}", example = folder.path());
    // People read sentences; ids are for those who ask for them.
    let ids = ["CAPV-", "CAPA-", "MCM-", "ORB-", "RUG-"];
    assert!(
        !lines.is_empty() && !ids.iter().any(|id| lines.contains(id)),
        "{lines}"
    );
    let mut wrong = Vec::new();
    let passes = Recording::open(recording.path()).expect("a recording");
    let read = passes.passes(|pass| wrong.extend(wrong_notes(&pass)));
    read.expect("it is whole");
    assert_eq!(wrong, [""; 0]);
    let ran = Ran {
        recording: recording.path().to_owned(),
        _folder: recording,
    };
    // The policies decide the same again, to the byte.
    let judged = ran.asked(&["replay", "--recordings"]);
    assert!(
        judged.contains(": 0 of ") && judged.lines().count() == 1,
        "{judged}"
    );
    ran
}

impl Ran {
    /// The passes of an object.
    fn passes(&self, kind: &str, name: &str) -> Vec<PassRecord> {
        passes::explained(&self.asked(&["explain", kind, name, "-o", "json", "--recordings"]))
    }

    /// What `explain` shows of an object.
    fn explained(&self, kind: &str, name: &str) -> String {
        self.asked(&["explain", kind, name, "--recordings"])
    }

    /// How often each edge of a policy was taken. No pass noted an id that it does not have.
    fn edges(&self, policy: &str) -> String {
        self.asked(&["edges", "--allow-missing", "--policy", policy])
    }

    /// The answer of a command about the recording.
    fn asked(&self, args: &[&str]) -> String {
        let answer = polity().args(args).arg(&self.recording).output();
        let answer = answer.expect("it runs");
        assert!(answer.status.success(), "{}", shown(&answer));
        text(&answer.stdout)
    }
}

fn polity() -> Command {
    Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(output: &Output) -> String {
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}
