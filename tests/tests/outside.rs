//! A policy outside this repository: the crate of the SDK's README, written from that page into a folder of
//! its own, tested, built with the page's commands, and run by the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const README: &str = include_str!("../../policies/sdk/README.md");

/// Where a real author takes the SDK from.
const SOURCE: &str = "git = \"https://polity.dev/polity\"";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder")
}

/// Dependencies are built once for all of them.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside")
}

/// The lines of the fenced block that follows a line.
fn block(after: &str) -> String {
    let (_, rest) = README.split_once(&format!("\n{after}\n")).expect(after);
    let lines = rest.lines().skip_while(|line| !line.starts_with("```")).skip(1);
    let lines = lines.take_while(|line| *line != "```");
    lines.map(|line| format!("{line}\n")).collect()
}

/// The files of the page: each is named by a line of its own, in backquotes.
fn files() -> Vec<(&'static str, String)> {
    let names = README
        .lines()
        .filter_map(|line| line.strip_prefix('`')?.strip_suffix('`'))
        .filter(|name| !name.contains('`'));
    names.map(|name| (name, block(&format!("`{name}`")))).collect()
}

/// The crate, as its author has it, but for where the SDK is taken from: here it is this working copy.
fn write_crate(folder: &Path) {
    for (name, text) in files() {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    }
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("the page has it");
    let local = |name: &str, place: &str| {
        let path = repository().join(place);
        (
            format!("{name} = {{ {SOURCE} }}"),
            format!("{name} = {{ path = {path:?} }}"),
        )
    };
    let mut patched = manifest;
    for (from, to) in [
        local("polity-sdk", "policies/sdk"),
        local("polity-sdk-build", "policies/sdk/build"),
    ] {
        assert!(patched.contains(&from), "the page's Cargo.toml has no {from}");
        patched = patched.replace(&from, &to);
    }
    fs::write(folder.join("Cargo.toml"), patched).expect("written");
    // The same versions of everything else, so that nothing has to be asked for.
    fs::copy(repository().join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
}

/// A command that knows nothing of the cargo that runs this test but where its registry is.
fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let cargos = text.starts_with("CARGO") && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&&*text);
        if cargos || text == "RUSTFLAGS" || text.starts_with("RUSTC") {
            command.env_remove(&name);
        }
    }
    // Of the toolchain that the repository names: a folder outside has none.
    command.env("CARGO_TARGET_DIR", target());
    command
}

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

fn succeeds(mut command: Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    assert!(status.success(), "{command:?} ended with {status}:\n{said}");
    said
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
    write_crate(folder);

    let tested = succeeds(typed("cargo test", folder));
    assert!(tested.contains("a_lamp_follows_its_switch ... ok"), "{tested}");

    // What a deployment does: the file that the page's command makes.
    succeeds(typed(block("<!-- build -->").trim(), folder));
    let built = target().join("wasm32-unknown-unknown/release/lamp.wasm");
    let binding = fs::read_to_string(folder.join("run/binding.yaml")).expect("the page has it");
    fs::create_dir(folder.join("deployed")).expect("created");
    fs::copy(&built, folder.join("deployed/lamp.wasm")).expect("copied");
    fs::copy(folder.join("run/lamp.yaml"), folder.join("deployed/lamp.yaml")).expect("copied");
    let by_file = binding.replace("crate: ..", "file: lamp.wasm");
    fs::write(folder.join("deployed/binding.yaml"), by_file).expect("written");
    runs(typed("polity run deployed --until-settled", folder));

    // What its author does: the host builds the crate.
    runs(typed(block("<!-- run -->").trim(), folder));

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
    let mut built = typed(block("<!-- build -->").trim(), folder);
    let Output { status, stderr, .. } = built.output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{said}");
    assert!(
        said.contains("let build.rs call polity_sdk_build::link()"),
        "{said}"
    );
}
