//! The main example as a user runs it: the binary, the example, the recording, and the commands that read it.

use std::path::Path;
use std::process::{Command, Output};

use polity_tests::{examples, guests};

fn polity() -> Command {
    Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
}

fn folder() -> tempfile::TempDir {
    examples::copy("capv-machine")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(output: &Output) -> String {
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn ten_machines_converge_and_the_recording_explains_why() {
    let (folder, recording) = (folder(), tempfile::tempdir().expect("a folder"));
    let run = polity()
        .args(["run", "--until-settled", "--speed", "max", "--record"])
        .arg(recording.path())
        .arg(folder.path())
        .output()
        .expect("it runs");
    assert!(run.status.success(), "{}", shown(&run));
    let said = text(&run.stderr);
    assert!(said.contains("everything is settled"), "{said}");
    assert!(!said.contains("not as expected"), "{said}");

    let explained = polity()
        .args([
            "explain",
            "Machine.capv.polity.dev",
            "team-a/machine-01",
            "--ids",
            "--recordings",
        ])
        .arg(recording.path())
        .output()
        .expect("it runs");
    assert!(explained.status.success(), "{}", shown(&explained));
    let explained = text(&explained.stdout);
    let notes: Vec<&str> = explained.lines().collect();
    // The happy path of the specification: 23, then 25, 27, and 29 in the end, with 05 and 30 as often as it takes.
    let position = |id: &str| {
        notes
            .iter()
            .position(|line| line.split(' ').any(|word| word == id))
    };
    let path: Vec<Option<usize>> = ["CAPV-23", "CAPV-25", "CAPV-27", "CAPV-29"]
        .map(position)
        .to_vec();
    assert!(path.iter().all(Option::is_some) && path.is_sorted(), "{notes:#?}");

    let edges = polity()
        .args(["edges", "--allow-missing"])
        .arg(recording.path())
        .output()
        .expect("it runs");
    assert!(edges.status.success(), "{}", shown(&edges));
    let lost = polity()
        .args([
            "explain",
            "machine",
            "team-a/machine-04",
            "-o",
            "json",
            "--recordings",
        ])
        .arg(recording.path())
        .output()
        .expect("it runs");
    let clones = text(&lost.stdout).matches(r#""effect":"unknown""#).count();
    assert!(clones > 0, "the lost answer of the clone is in the recording");
}

#[test]
fn a_recording_shows_how_every_object_stands_and_which_cost_most() {
    let (folder, recording) = (folder(), tempfile::tempdir().expect("a folder"));
    let run = polity()
        .args(["run", "--until-settled", "--speed", "max", "--record"])
        .arg(recording.path())
        .arg(folder.path())
        .output()
        .expect("it runs");
    assert!(run.status.success(), "{}", shown(&run));
    let lines = |command: &[&str]| -> Vec<String> {
        let output = polity()
            .args(command)
            .arg("--recordings")
            .arg(recording.path())
            .output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{command:?}: {}", shown(&output));
        text(&output.stdout).lines().map(str::to_owned).collect()
    };
    let all = lines(&["get", "machines.capv.polity.dev", "-n", "team-a"]);
    assert!(all[0].starts_with("KIND      OBJECT "), "{all:#?}");
    let running = all
        .iter()
        .filter(|line| line.contains("Running") && line.contains("settled"));
    assert_eq!(
        (all.len(), running.count()),
        (10, 9),
        "nine run, and one was deleted: {all:#?}"
    );
    let released = lines(&["get", "--released"]);
    assert_eq!(released.len(), 11);
    let gone: Vec<&String> = released
        .iter()
        .filter(|line| line.contains("machine-06"))
        .collect();
    assert_eq!(gone.len(), 1);
    assert!(
        gone[0].contains("  released  ") && !gone[0].contains("settled"),
        "{gone:?}"
    );
    let sentence = "The VM has addresses: the machine is as it should be";
    assert_eq!(
        all.iter().filter(|line| line.ends_with(sentence)).count(),
        9,
        "{all:#?}"
    );
    assert_eq!(lines(&["get", "routers"]).len(), 1, "the heading alone");
    assert_eq!(lines(&["get", "-n", "team-b"]).len(), 1);
    let of = |line: &String| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let fuel: Vec<u64> = lines(&["top", "--by", "fuel", "--first", "4", "-o", "json"])
        .iter()
        .map(|line| of(line)["costs"]["fuel"].as_u64().expect("a number"))
        .collect();
    assert!(
        fuel.len() == 4 && fuel[0] > fuel[3] && fuel.iter().rev().is_sorted(),
        "{fuel:?}"
    );
}

#[test]
fn a_policy_says_what_it_is_and_what_it_needs_before_it_is_rolled_out() {
    let folder = folder();
    let inspect = |options: &[&str], file: &str| {
        let command = polity()
            .args(["policy", "inspect"])
            .args(options)
            .arg(folder.path().join(file))
            .output();
        command.expect("it runs")
    };
    let output = inspect(&[], "capv_machine.wasm");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", shown(&output));
    for part in [
        "role          lifecycle\n",
        "cloud vm.clone\n",
        "governs       capv.polity.dev/v1alpha1 Machine\n",
        "requeuePeriod (default \"20s\"): ",
        " for the first step of a bare object\n",
    ] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
    let output = inspect(&["-o", "json"], "capv_machine.wasm");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["manifest"]["name"], "capv-machine");
    let bytes = std::fs::metadata(folder.path().join("capv_machine.wasm"))
        .expect("the file")
        .len();
    assert_eq!(said["bytes"], bytes);
    for file in ["binding.yaml", "no-such.wasm"] {
        let output = inspect(&[], file);
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
        assert!(text(&output.stderr).contains(file), "{}", shown(&output));
    }
}

#[test]
fn a_shell_completes_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = polity().args(["completions", shell]).output().expect("it runs");
        let script = text(&output.stdout);
        assert!(output.status.success(), "{}", shown(&output));
        assert!(
            script.contains("node-agent") && script.contains("recordings"),
            "{shell}"
        );
    }
}

/// `polity`, as somebody starts it who has just cloned the repository: in its root, without what cargo tells tests.
fn freshly_cloned(temporary: &Path) -> Command {
    let mut polity = polity();
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let cargos = text.starts_with("CARGO") && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&&*text);
        if cargos || text.starts_with("RUSTC") || text == "RUSTUP_TOOLCHAIN" {
            polity.env_remove(&name);
        }
    }
    polity
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        // The host's is not a test's to write to.
        .env("CARGO_TARGET_DIR", guests::target())
        // Which recording is the last one is remembered there.
        .env("TMPDIR", temporary);
    polity
}

#[test]
fn the_first_commands_of_the_readme_build_the_policy_run_the_example_and_explain_it() {
    let temporary = tempfile::tempdir().expect("a folder");
    let run = freshly_cloned(temporary.path())
        .args(["run", "examples/capv-machine", "--until-settled"])
        .output()
        .expect("it runs");
    assert!(run.status.success(), "{}", shown(&run));
    let said = text(&run.stderr);
    assert!(
        said.contains("building policies/capv-machine for wasm32-unknown-unknown"),
        "{said}"
    );
    let expected = std::fs::read_to_string(examples::source("capv-machine").join("scenario.yaml"));
    let expected = expected.expect("read").matches("- that:").count();
    assert_eq!(said.matches("  as expected: ").count(), expected, "{said}");

    let explained = freshly_cloned(temporary.path())
        .args(["explain", "Machine", "team-a/machine-03"])
        .output()
        .expect("it runs");
    assert!(explained.status.success(), "{}", shown(&explained));
    let explained = text(&explained.stdout);
    for edge in [
        "The task failed: ",
        "The machine has no VM: ",
        "The VM has addresses: ",
    ] {
        assert!(explained.contains(edge), "{edge:?} is missing: {explained}");
    }
    assert!(!explained.contains("CAPV-"), "{explained}");
}

#[test]
fn help_is_there_for_every_command() {
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["explain", "--help"],
        &["edges", "--help"],
        &["crds", "--help"],
        &["get", "--help"],
        &["top", "--help"],
        &["status", "--help"],
        &["policy", "inspect", "--help"],
        &["policy", "build", "--help"],
        &["completions", "--help"],
    ] {
        let output = polity().args(command).output().expect("it runs");
        assert!(
            output.status.success() && text(&output.stdout).contains("Usage: "),
            "{command:?}"
        );
    }
}

#[test]
fn the_definitions_are_ready_to_apply() {
    let folder = folder();
    let output = polity()
        .arg("crds")
        .arg(folder.path().join("capv_machine.wasm"))
        .output()
        .expect("it runs");
    let crds = text(&output.stdout);
    assert!(output.status.success(), "{}", shown(&output));
    for name in ["policybindings.polity.dev", "machines.capv.polity.dev"] {
        assert!(crds.contains(name), "{name} is missing");
    }
}

#[test]
fn a_folder_without_manifests_and_an_unknown_recording_say_what_to_do() {
    let empty = tempfile::tempdir().expect("a folder");
    let run = polity().arg("run").arg(empty.path()).output().expect("it runs");
    assert!(
        !run.status.success() && text(&run.stderr).contains("holds no manifests"),
        "{}",
        shown(&run)
    );
    let explain = polity()
        .args(["explain", "Machine", "a/b", "--recordings"])
        .arg(empty.path())
        .output()
        .expect("it runs");
    assert!(
        !explain.status.success() && text(&explain.stderr).contains("is not a recording"),
        "{}",
        shown(&explain)
    );
}

#[test]
fn a_binding_that_cannot_load_ends_the_wait_with_the_reason_whatever_the_scenario_would_still_do() {
    let folder = folder();
    let binding = std::fs::read_to_string(folder.path().join("binding.yaml")).expect("read");
    std::fs::write(
        folder.path().join("binding.yaml"),
        binding.replace("capv_machine.wasm", "missing.wasm"),
    )
    .expect("written");
    // Its kind is not served without the policy that carries its definition.
    std::fs::remove_file(folder.path().join("machines.yaml")).expect("removed");
    let run = polity()
        .args(["run", "--until-settled"])
        .arg(folder.path())
        .output()
        .expect("it runs");
    assert_eq!(run.status.code(), Some(1), "{}", shown(&run));
    let said = text(&run.stderr);
    let (_, why) = said
        .split_once("not settled, and nothing can change that any more:\n")
        .expect(&said);
    assert!(why.contains("missing.wasm"), "{said}");
}
