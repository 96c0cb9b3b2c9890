//! Names with special characters: they are refused or escaped, and nothing outside the folders is opened.

use std::path::Path;
use std::process::{Command, Output};

use polity_tests::guests;
use polity_tests::host_fixture::{HostFixture, things};
use serde_json::{Value, json};

fn polity() -> Command {
    Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
}

/// Names that are none.
fn names() -> Vec<String> {
    ["..", "../x", "a/b", "a\0b", "\u{1b}[2J\u{9b}31m\u{202e}", "a\nb"]
        .into_iter()
        .map(str::to_owned)
        .chain(["x".repeat(10_000)])
        .collect()
}

/// What a terminal would act on.
fn acts(c: char) -> bool {
    (c.is_control() && c != '\n') || c == '\u{202e}'
}

/// Both outputs, which hold nothing that a terminal acts on, and not too much.
fn tame(output: &Output) -> String {
    let shown = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!shown.contains(acts), "{shown:?}");
    assert!(shown.lines().all(|line| line.len() < 8_192), "{shown:.2000}");
    shown
}

/// As JSON that YAML readers take: some of the characters may not stand there as they are.
fn write(folder: &Path, file: &str, documents: &[Value]) {
    let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
    let escaped = |c: char| match c {
        ' '..='~' | '\n' => c.to_string(),
        c => format!("\\u{:04x}", u32::from(c)),
    };
    let text: String = texts.join("\n---\n").chars().map(escaped).collect();
    std::fs::write(folder.join(file), text).expect("written");
}

#[tokio::test(start_paused = true)]
async fn a_policy_file_is_never_looked_for_outside_of_its_folder() {
    let fixture = HostFixture::with(Vec::new()).await;
    fixture.open_bindings().await;
    // A policy that would load, if only it were reached.
    let outside = tempfile::tempdir().expect("a folder");
    let policy = outside.path().join("policy.wasm");
    std::fs::write(&policy, guests::hostile()).expect("written");
    let relative = format!(
        "../{}/policy.wasm",
        outside.path().file_name().expect("a name").to_string_lossy()
    );
    assert!(fixture.path("").join(&relative).is_file(), "it is there");
    std::os::unix::fs::symlink(&policy, fixture.path("link.wasm")).expect("linked");
    std::os::unix::fs::symlink(outside.path(), fixture.path("folder")).expect("linked");
    let mut files = names();
    files.extend([relative, policy.display().to_string()]);
    files.extend(
        [
            "link.wasm",
            "folder/policy.wasm",
            "",
            ".",
            "/dev/zero",
            "/proc/self/environ",
        ]
        .map(str::to_owned),
    );

    for (number, file) in files.iter().enumerate() {
        let (name, mut binding) = (format!("binding-{number}"), things());
        binding["metadata"]["name"] = json!(name);
        binding["spec"]["policies"]["lifecycle"]["file"] = json!(file);
        fixture.apply(&binding).await;
        let message = fixture
            .until_said(&name, "Loaded", "False", "spec.policies.lifecycle")
            .await;
        assert!(!message.contains(|c| acts(c) || c == '\n'), "{message:?}");
        assert!(
            message.chars().count() <= 4_200,
            "{} characters",
            message.chars().count()
        );
    }
    // The same policy, where it belongs.
    fixture.apply(&things()).await;
    fixture.until_said("things", "Loaded", "True", "").await;
}

#[test]
fn an_object_with_a_name_that_is_none_is_refused_and_its_name_shown_escaped() {
    for name in names() {
        for field in ["name", "namespace"] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
            object["metadata"][field] = json!(name);
            write(folder.path(), "object.json", &[object]);
            let run = polity()
                .args(["run", "--until-settled"])
                .arg(folder.path())
                .output()
                .expect("it runs");
            let shown = tame(&run);
            assert_eq!(run.status.code(), Some(2), "{name:.20?}: {shown}");
            assert!(shown.contains("cannot apply ConfigMap"), "{name:.20?}: {shown}");
        }
    }
}

#[test]
fn names_in_bindings_reach_no_file_and_are_escaped() {
    let root = tempfile::tempdir().expect("a folder");
    let (folder, data) = (root.path().join("manifests"), root.path().join("data"));
    std::fs::create_dir(&folder).expect("created");
    // What `cloud-../../bait.json` and the like would find.
    std::fs::write(root.path().join("bait.json"), "not to be read").expect("written");
    let mut bindings = Vec::new();
    for (number, name) in names().into_iter().chain(["../../bait".to_owned()]).enumerate() {
        let mut binding = things();
        binding["metadata"]["name"] = json!(format!("binding-{number}"));
        binding["spec"]["cloud"] = json!({"name": name});
        binding["spec"]["governs"]["namespace"] = json!(name);
        bindings.push(binding);
    }
    write(&folder, "all.yaml", &bindings);
    std::fs::write(folder.join("hostile.wasm"), guests::hostile()).expect("written");
    for format in ["text", "json"] {
        // What is wrong is said before anything runs; that it settles never is what is expected.
        let run = polity()
            .args([
                "run",
                "--until-settled",
                "--deadline",
                "1s",
                "-o",
                format,
                "--data",
            ])
            .args([&data, &folder])
            .output()
            .expect("it runs");
        let shown = tame(&run);
        assert_eq!(run.status.code(), Some(1), "{shown}");
        assert!(
            shown.matches("unknown cloud").count() >= bindings.len(),
            "{shown}"
        );
        assert!(!shown.contains("not to be read"), "{shown}");
    }
    let entries = std::fs::read_dir(root.path()).expect("read");
    let mut left: Vec<_> = entries.map(|entry| entry.expect("read").file_name()).collect();
    left.sort();
    assert_eq!(
        left,
        ["bait.json", "data", "manifests"],
        "nothing beside the data folder"
    );
}

#[test]
fn a_step_of_a_scenario_that_cannot_be_taken_fails_the_run_and_is_said_escaped() {
    let folder = tempfile::tempdir().expect("a folder");
    let config_map =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": name});
    let mut names = names();
    names.push("absent".to_owned());
    let steps = names.iter().flat_map(|name| {
        [
            json!({"patch": {"object": config_map(name), "patch": {}}}),
            json!({"delete": config_map(name)}),
        ]
    });
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "count": 0});
    let ends = |steps: Vec<Value>, code: i32| {
        let scenario = json!({
            "apiVersion": "polity.dev/v1alpha1", "kind": "Scenario", "speed": 40, "steps": steps,
            "expect": names.iter().map(|name| json!({"that": name, "objects": nothing})).collect::<Vec<_>>(),
        });
        write(folder.path(), "scenario.yaml", &[scenario]);
        let run = polity()
            .args(["run", "--until-settled"])
            .arg(folder.path())
            .output()
            .expect("it runs");
        let shown = tame(&run);
        assert_eq!(run.status.code(), Some(code), "{shown}");
        shown
    };
    let shown = ends(Vec::new(), 0);
    assert_eq!(shown.matches("as expected: ").count(), names.len(), "{shown}");
    // It ends once all steps that were due have been taken.
    let shown = ends(steps.collect(), 1);
    assert_eq!(
        shown.matches("a step failed: ").count(),
        2 * names.len(),
        "{shown}"
    );
    assert!(shown.contains("steps of the scenario that failed: 16"), "{shown}");
}

#[test]
fn what_a_policy_says_is_escaped_wherever_it_is_shown() {
    let (folder, recording) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let mut binding = things();
    binding["spec"]["policies"]["lifecycle"]["configuration"] = json!({"mischief": "escape"});
    let thing = json!({
        "apiVersion": "test.polity.example/v1", "kind": "Thing", "metadata": {"name": "one", "namespace": "default"},
    });
    write(folder.path(), "all.yaml", &[binding, thing]);
    std::fs::write(folder.path().join("hostile.wasm"), guests::hostile()).expect("written");
    for format in ["text", "json"] {
        let run = polity()
            .args([
                "run",
                "--until-settled",
                "--speed",
                "40",
                "-o",
                format,
                "--record",
            ])
            .args([recording.path(), folder.path()])
            .output()
            .expect("it runs");
        let shown = tame(&run);
        assert_eq!(run.status.code(), Some(0), "{shown}");
        let escaped = if format == "text" {
            r"\u{1b}[2J\u{9b}31m"
        } else {
            r"\u001b[2J\u009b31m"
        };
        assert!(String::from_utf8_lossy(&run.stdout).contains(escaped), "{shown}");
        for command in [
            &["explain", "Thing", "default/one", "--recordings"][..],
            &["edges"],
        ] {
            let said = polity()
                .args(command)
                .arg(recording.path())
                .args(["-o", format])
                .output()
                .expect("it runs");
            let shown = tame(&said);
            assert!(
                shown.contains(r"\u{1b}[2J") || shown.contains(r"\u001b[2J"),
                "{command:?}: {shown}"
            );
        }
    }
}

#[test]
fn names_on_the_command_line_are_escaped_in_what_is_said_of_them() {
    let name = "\u{1b}[2J\u{9b}31m";
    for command in [
        &["run", name][..],
        &["explain", "Thing", name, "--recordings", name],
        &["edges", name],
        &["crds", name],
    ] {
        let output = polity().args(command).output().expect("it runs");
        let shown = tame(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {shown}");
        assert!(shown.contains(r"\u{1b}[2J"), "{command:?}: {shown}");
    }
}
