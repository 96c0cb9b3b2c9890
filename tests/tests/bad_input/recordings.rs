//! Recordings that somebody made to take the time, the memory or the terminal of whoever reads them.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use polity_tests::guests;
use polity_tests::host_fixture::{thing, things};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a command may take: a gibibyte of memory, in kibibytes, and a minute of processor time.
const MEMORY: &str = "1048576";
const SECONDS: &str = "60";
/// The longest line and the longest text that a command prints.
const LINE: usize = 8_192;
const PRINTED: usize = 256 << 10;

/// A recording of an object that is well, and the policy that decided.
struct Recorded {
    folder: TempDir,
}

impl Recorded {
    /// As a host made it. It is made once.
    fn fresh() -> Self {
        static MADE: OnceLock<TempDir> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let write = |name: &str, object: &Value| {
                fs::write(folder.path().join(name), object.to_string()).expect("written");
            };
            write("binding.yaml", &things());
            write("thing.yaml", &thing("one", "behave"));
            fs::write(folder.path().join("hostile.wasm"), guests::hostile()).expect("written");
            let run = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
                .args(["run", "--until-settled", "--speed", "max", "--record"])
                .args([folder.path().join("recording"), folder.path().to_owned()])
                .output()
                .expect("it runs");
            assert!(run.status.success(), "{}", said(&run));
            folder
        });
        let recorded = Recorded {
            folder: tempfile::tempdir().expect("a folder"),
        };
        for inner in ["bindings", "passes", "policies"] {
            fs::create_dir(recorded.path(inner)).expect("made");
            for file in fs::read_dir(made.path().join("recording").join(inner)).expect("a folder") {
                let file = file.expect("a file");
                fs::copy(file.path(), recorded.path(inner).join(file.file_name())).expect("copied");
            }
        }
        recorded
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The only file in a folder with this end.
    fn only(&self, folder: &str, end: &str) -> PathBuf {
        let files = fs::read_dir(self.path(folder)).expect("a folder");
        let mut files = files.map(|file| file.expect("a file").path());
        files
            .find(|file| file.to_string_lossy().ends_with(end))
            .expect("a file")
    }

    /// Changes the last pass, or adds one that is changed before it.
    fn pass(&self, is_added: bool, change: impl FnOnce(&mut Value)) {
        let segment = self.only("passes", ".jsonl");
        let text = fs::read_to_string(&segment).expect("a segment");
        let (before, last) = text.trim_end().rsplit_once('\n').expect("a header and a pass");
        let mut pass: Value = serde_json::from_str(last).expect("a pass");
        change(&mut pass);
        let changed = if is_added {
            format!("{before}\n{pass}\n{last}\n")
        } else {
            format!("{before}\n{pass}\n")
        };
        fs::write(segment, changed).expect("written");
    }

    /// Changes the binding.
    fn binding(&self, change: impl FnOnce(&mut Value)) {
        let file = self.only("bindings", ".json");
        let mut binding: Value = serde_json::from_slice(&fs::read(&file).expect("read")).expect("JSON");
        change(&mut binding);
        fs::write(file, binding.to_string()).expect("written");
    }

    /// Runs a command within limits of memory and processor time.
    fn read(&self, command: &str, more: &[&str]) -> Output {
        let limited = format!("ulimit -d {MEMORY}; ulimit -t {SECONDS}; exec \"$@\"");
        let mut polity = Command::new("sh");
        polity.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_polity-under-test")]);
        let policy = guests::folder().join("hostile.wasm");
        let policy = policy.to_str().expect("text");
        let arguments = match command {
            "explain" => vec!["explain", "Thing", "default/one"],
            "step" => vec!["explain", "Thing", "default/one", "--step"],
            "diff" => vec!["policy", "diff", policy, policy, "--objects"],
            "edges" => vec!["edges", "--allow-missing"],
            other => vec![other],
        };
        polity.args(arguments);
        if command != "edges" {
            polity.arg("--recordings");
        }
        polity.arg(self.folder.path()).args(more);
        polity.output().expect("it runs")
    }
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

/// A file of forty gigabytes that takes no room.
fn sparse(path: &Path) {
    let file = File::create(path).expect("made");
    file.set_len(40 << 30).expect("it has holes");
}

/// A segment of one line, as gzip packs it.
fn packed(path: &Path, text: &[u8], times: usize) {
    let mut file = GzEncoder::new(File::create(path).expect("made"), Compression::fast());
    // Of the session that the whole segment has, which is the newest.
    file.write_all(b"{\"session\":1}\n").expect("packed");
    (0..times).for_each(|_| file.write_all(text).expect("packed"));
    file.finish().expect("packed");
}

/// An act, which no host has made, with its answer.
fn act() -> Value {
    let cloud = json!({"operation": "vm.power-on", "arguments": "{}", "intent": null});
    json!({"request": {"act": {"cloud": cloud}}, "answer": {"Ok": "{}"}})
}

struct Row {
    name: &'static str,
    damage: fn(&Recorded),
    /// Each command with its exit code and what it says.
    reads: &'static [(&'static str, i32, &'static str)],
}

const STEPS: &str = "it took more than ten times the default of steps";
const NOT_READ: &str = "is larger than a host writes it, so it is not read; --limits recorded reads it";
const MANIFEST: &str = "the manifest of a policy is missing: policies/";

const ROWS: [Row; 10] = [
    Row {
        name: "a segment of forty gigabytes",
        damage: |recorded| sparse(&recorded.path("passes/000009.jsonl")),
        reads: &[
            (
                "get",
                0,
                "left out: it is behind the first 512 MiB of its segment",
            ),
            ("top", 0, "left out: it is behind"),
            ("edges", 1, "left out: it is behind"),
            ("explain", 0, "left out: it is behind"),
            ("step", 0, "left out: it is behind"),
            ("diff", 0, "left out: it is behind"),
            ("replay", 0, "not judged: it is behind"),
        ],
    },
    Row {
        name: "a packed line of two hundred mebibytes",
        damage: |recorded| packed(&recorded.path("passes/000009.jsonl.gz"), &[b'x'; 1 << 20], 200),
        reads: &[
            ("get", 0, "1 line of the recording"),
            (
                "top",
                0,
                "left out: it has more than 64 MiB; --limits recorded reads it",
            ),
            ("replay", 0, "1  not judged: it has more than 64 MiB"),
        ],
    },
    Row {
        name: "a line of millions of empty objects",
        damage: |recorded| {
            packed(
                &recorded.path("passes/000009.jsonl.gz"),
                &b"{\"\":0},".repeat(1 << 10),
                4 << 10,
            )
        },
        reads: &[
            ("get", 0, "left out: it has more than 1048576 values"),
            ("explain", 0, "left out: it has more than 1048576 values"),
            ("diff", 0, "left out: it has more than 1048576 values"),
            ("replay", 0, "not judged: it has more than 1048576 values"),
        ],
    },
    Row {
        name: "a binding of forty gigabytes",
        damage: |recorded| sparse(&recorded.only("bindings", ".json")),
        reads: &[("replay", 2, NOT_READ), ("step", 2, NOT_READ)],
    },
    Row {
        name: "a manifest of forty gigabytes",
        damage: |recorded| sparse(&recorded.path("policies/other.json")),
        reads: &[
            ("get", 0, MANIFEST),
            ("top", 0, MANIFEST),
            ("edges", 1, MANIFEST),
            ("explain", 0, MANIFEST),
            ("replay", 0, MANIFEST),
        ],
    },
    Row {
        name: "what objects wait for, in forty gigabytes",
        damage: |recorded| sparse(&recorded.path("waiting.json")),
        reads: &[("explain", 0, NOT_READ), ("step", 0, NOT_READ)],
    },
    Row {
        name: "a million steps",
        damage: |recorded| {
            recorded.pass(true, |pass| {
                let role = &mut pass["roles"][0];
                role["journal"] = json!([act()]);
                role["had"] = [0, 1].repeat(500_000).into();
            });
        },
        reads: &[
            ("get", 0, STEPS),
            ("top", 0, STEPS),
            ("step", 0, STEPS),
            (
                "replay",
                0,
                "1  not judged: it took more than ten times the default of steps",
            ),
        ],
    },
    Row {
        name: "fuel for a hundred years and a policy that spins",
        damage: |recorded| {
            recorded.binding(|binding| {
                let limits = &mut binding["limits"];
                limits["stepFuel"] = (1_u64 << 62).into();
                limits["passFuel"] = (1_u64 << 62).into();
                limits["stepWall"] = (1_u64 << 62).into();
            });
            recorded.pass(false, |pass| {
                pass["object"] = thing("one", "loop").to_string().into()
            });
        },
        reads: &[
            (
                "replay",
                0,
                "1  not judged: it needs more than ten times the default limits",
            ),
            (
                "replay",
                0,
                "limits of binding things are cut: stepFuel from 4611686018427387904 to 100000000",
            ),
            ("step", 0, "debug   it spins"),
            ("step", 0, "limits of binding things are cut: stepFuel from"),
        ],
    },
    Row {
        name: "names and notes of eight megabytes",
        damage: |recorded| {
            let long = "x".repeat(8 << 20);
            recorded.pass(true, |pass| {
                pass["key"]["name"] = long.as_str().into();
                pass["kind"]["kind"] = long.as_str().into();
                pass["roles"][0]["conclusion"]["notes"] = json!([long]);
            });
        },
        reads: &[
            ("get", 0, "xxx…"),
            ("top", 0, "xxx…"),
            ("edges", 1, "xxx…"),
            ("replay", 1, "notes xxx"),
        ],
    },
    Row {
        name: "texts of eight megabytes in a pass",
        damage: |recorded| {
            let long = "x".repeat(8 << 20);
            recorded.pass(false, |pass| {
                let lock = json!({"request": {"ask": {"round": 0, "question": {"lock": long}}}, "answer": {"Ok": long}});
                pass["causes"] = json!([{"lock": long}]);
                pass["outcome"] = json!({"bug": long});
                pass["roles"][0]["journal"] = json!([lock]);
                pass["roles"][0]["conclusion"]["events"] =
                    json!([{"kind": "Normal", "reason": long, "message": long}]);
                pass["roles"][0]["conclusion"]["notes"] = json!([long]);
            });
        },
        reads: &[
            ("get", 0, "a defect of Polity: xxx"),
            ("explain", 0, "a defect of Polity: xxx"),
            ("step", 0, "ask     lock xxx"),
            ("edges", 1, "xxx…"),
        ],
    },
];

#[test]
fn a_recording_takes_no_more_of_its_reader_than_what_a_host_writes() {
    let mut wrong = Vec::new();
    for Row { name, damage, reads } in &ROWS {
        let wanted = std::env::var("POLITY_ROW").unwrap_or_default();
        if !name.contains(&wanted) {
            continue;
        }
        let recorded = Recorded::fresh();
        damage(&recorded);
        for (command, code, words) in *reads {
            let read = recorded.read(command, &[]);
            let text = said(&read);
            let is_tame = text.len() < PRINTED && text.lines().all(|line| line.len() < LINE);
            if read.status.code() != Some(*code) || !text.contains(words) || !is_tame {
                let (length, status) = (text.len(), read.status);
                wrong.push(format!(
                    "{name}, {command}: {status}, {length} bytes: {text:.2000}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn whoever_trusts_the_author_of_a_recording_has_it_read_as_it_is() {
    let recorded = Recorded::fresh();
    let whole = recorded.read("get", &["-o", "json"]);
    assert!(whole.status.success(), "{}", said(&whole));
    let notes = vec!["A"; 2_561];
    recorded.pass(false, |pass| {
        pass["roles"][0]["conclusion"]["notes"] = json!(notes)
    });
    let left_out = recorded.read("get", &[]);
    let text = said(&left_out);
    assert!(
        text.contains("it has more than ten times the default of notes"),
        "{text}"
    );
    let believed = recorded.read("edges", &["--limits", "recorded"]);
    let text = said(&believed);
    assert!(!text.contains("left out") && text.contains(": A"), "{text}");
}
