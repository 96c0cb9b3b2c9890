//! `polity replay`: what another version or configuration of a policy would have decided on recorded passes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use polity_tests::examples::copy;
use polity_tests::guests;
use serde_json::Value;
use tempfile::TempDir;

/// An example that was run and recorded once.
struct Recorded {
    folder: TempDir,
}

impl Recorded {
    fn of(example: &str) -> Self {
        let folder = copy(example);
        let recorded = Recorded { folder };
        let run = polity(&["run", "--until-settled", "--speed", "max", "--record"])
            .arg(recorded.recording())
            .arg(recorded.folder.path())
            .output()
            .expect("it runs");
        assert!(run.status.success(), "{}", said(&run));
        recorded
    }

    /// One for all tests that only read it.
    fn machines() -> &'static Self {
        static MACHINES: OnceLock<Recorded> = OnceLock::new();
        MACHINES.get_or_init(|| Recorded::of("capv-machine"))
    }

    fn recording(&self) -> PathBuf {
        self.folder.path().join("recording")
    }

    /// Writes a file beside the manifests.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    fn replay(&self, args: &[&str], paths: &[(&str, &Path)]) -> Output {
        let mut replay = polity(&["replay"]);
        replay.args(args).arg("--recordings").arg(self.recording());
        for (option, path) in paths {
            replay.arg(option).arg(path);
        }
        replay.output().expect("it runs")
    }

    /// The report with a policy, or with a configuration for it, too.
    fn report(&self, policy: &str, configuration: Option<&str>) -> Value {
        let policy = component(policy);
        let file = configuration.map(|text| self.file("configuration.txt", text));
        let mut paths = vec![("--policy", policy.as_path())];
        paths.extend(file.as_deref().map(|file| ("--configuration", file)));
        let replayed = self.replay(&["-o", "json"], &paths);
        assert!(replayed.status.success(), "{}", said(&replayed));
        serde_json::from_slice(&replayed.stdout).expect("one document")
    }
}

/// A policy that the build script has built.
fn component(name: &str) -> PathBuf {
    guests::folder().join(format!("{name}.wasm"))
}

fn polity(args: &[&str]) -> Command {
    let mut polity = Command::new(env!("CARGO_BIN_EXE_polity-under-test"));
    polity.args(args);
    polity
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

/// What the groups of a report say, without counts: `next: after 20s → after 1m`.
fn changes(report: &Value) -> Vec<String> {
    let groups = report["groups"].as_array().expect("groups").iter();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |group: &Value| {
        let [what, of, was, now] = ["difference", "of", "was", "now"].map(|field| text(&group[field]));
        format!("{what} {of}: {was} → {now}")
    };
    groups.map(line).collect()
}

#[test]
fn a_change_of_a_configuration_is_all_that_is_shown_of_it() {
    let recorded = Recorded::machines();
    let as_it_was = "requeuePeriod: 20s\nfailureBackoff: 60s\n";
    for (configuration, expected) in [
        (as_it_was, &[][..]),
        (
            "requeuePeriod: 60s\nfailureBackoff: 60s\n",
            &["next : after 20s → after 1m"],
        ),
        (
            "requeuePeriod: 20s\nfailureBackoff: 60s\nresync: 5m\n",
            &["next : settled, again after 10m → settled, again after 5m"],
        ),
        (
            "{\"requeuePeriod\": \"20s\", \"failureBackoff\": \"60s\", \"ipWait\": \"7s\"}",
            &["next : after 20s → after 7s"],
        ),
    ] {
        let report = recorded.report("capv_machine", Some(configuration));
        assert_eq!(changes(&report), expected, "{configuration}");
        let count = |field: &str| report[field].as_u64().expect("a number");
        assert_eq!(count("differs") > 0, !expected.is_empty(), "{report}");
        assert_eq!(count("same") + count("differs"), count("passes"), "{report}");
        assert!(count("passes") > 40, "{report}");
    }
    let report = recorded.report("capv_machine", None);
    assert_eq!((changes(&report), &report["differs"]), (Vec::new(), &0.into()));
}

#[test]
fn the_report_is_in_words_and_the_exit_code_says_what_was_found() {
    let recorded = Recorded::machines();
    let policy = component("capv_machine");
    let slower = recorded.file("slower.yaml", "requeuePeriod: 60s\n");
    let paths = [
        ("--policy", policy.as_path()),
        ("--configuration", slower.as_path()),
    ];
    let replayed = recorded.replay(&["--fail-on", "differs,fault"], &paths);
    assert_eq!(replayed.status.code(), Some(1), "{}", said(&replayed));
    let text = said(&replayed);
    for expected in [
        "passes would be decided differently",
        "lifecycle next: after 20s → after 1m",
        "Machine team-a/machine-01, pass ",
        "passes judged in",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for args in [&["--fail-on", "fault,would-ask,unfinished"][..], &[]] {
        assert_eq!(recorded.replay(args, &paths).status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn what_cannot_be_judged_is_said_in_one_sentence() {
    let recorded = Recorded::machines();
    let policy = component("capv_machine");
    let wrong = recorded.file("wrong.yaml", "requeuePeriod: soon\n");
    let unknown = recorded.file("unknown.yaml", "requeuPeriod: 20s\n");
    let no_yaml = recorded.file("broken.yaml", "a: [");
    let retry = component("backoff_retry");
    let missing = recorded.folder.path().join("missing.wasm");
    let policy = policy.as_path();
    let all = [
        (
            vec![("--policy", policy), ("--configuration", wrong.as_path())],
            "capv-machine refuses",
        ),
        (
            vec![("--policy", policy), ("--configuration", unknown.as_path())],
            "requeuPeriod",
        ),
        (
            vec![("--policy", policy), ("--configuration", no_yaml.as_path())],
            "cannot read",
        ),
        (vec![("--policy", missing.as_path())], "missing.wasm"),
        (
            vec![("--policy", retry.as_path())],
            "capv-machine (lifecycle capv-machine of Machine)",
        ),
    ];
    for (paths, expected) in all {
        let replayed = recorded.replay(&[], &paths);
        assert_eq!(replayed.status.code(), Some(2), "{}", said(&replayed));
        let error = String::from_utf8_lossy(&replayed.stderr).into_owned();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(replayed.stdout.is_empty(), "{}", said(&replayed));
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_damaged_line_is_said_and_the_passes_around_it_are_judged_and_an_older_recording_too() {
    let recorded = Recorded::of("capv-machine");
    let segment = recorded.recording().join("passes/000001.jsonl");
    let text = std::fs::read_to_string(&segment).expect("a segment");
    let whole = text.lines().count() - 1;
    let mut lines: Vec<&str> = text.lines().collect();
    lines[3] = &lines[3][..lines[3].len() / 2];
    std::fs::write(&segment, lines.join("\n") + "\n{\"pass\":").expect("written");
    let replayed = recorded.replay(&[], &[]);
    let text = said(&replayed);
    assert!(replayed.status.success(), "{text}");
    assert!(text.contains(&format!("0 of {} passes", whole - 1)), "{text}");
    assert!(text.contains("1 damaged line"), "{text}");

    // Older versions recorded no bindings, and not what each step had.
    let old: Vec<String> = lines
        .iter()
        .map(|line| {
            let Ok(mut pass) = serde_json::from_str::<Value>(line) else {
                return (*line).to_owned();
            };
            if let Some(pass) = pass.as_object_mut() {
                pass.remove("binding");
            }
            for role in pass["roles"].as_array_mut().into_iter().flatten() {
                role.as_object_mut().expect("a role").remove("had");
            }
            pass.to_string()
        })
        .collect();
    std::fs::write(&segment, old.join("\n") + "\n").expect("written");
    std::fs::remove_dir_all(recorded.recording().join("bindings")).expect("it was there");
    let policy = component("capv_machine");
    let replayed = recorded.replay(&[], &[("--policy", &policy)]);
    let text = said(&replayed);
    assert!(replayed.status.success(), "{text}");
    assert!(text.contains(&format!("0 of {} passes", whole - 1)), "{text}");
    assert!(text.contains("recorded by an older version of polity"), "{text}");

    let text = std::fs::read_to_string(&segment).expect("a segment");
    let other = text.replacen("\"format\":", "\"format\":9", 1);
    std::fs::write(&segment, other).expect("written");
    for command in ["replay", "explain"] {
        let mut polity = polity(&[command]);
        match command {
            "replay" => polity.arg("--recordings"),
            _ => polity.args(["machine", "team-a/machine-01", "--recordings"]),
        };
        let refused = polity.arg(recorded.recording()).output().expect("it runs");
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(error.contains("the recording has format 9"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
